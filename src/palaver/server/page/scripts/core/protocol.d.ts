// The server's events and the JSON of its answers. Written by `python -m tools.protocol`.

export type EventName =
  | "message.added"
  | "history.edited"
  | "history.rolled_back"
  | "tool.pending"
  | "tool.running"
  | "tool.completed"
  | "tool.error"
  | "usage.updated"
  | "cache.updated"
  | "tokens.exceeded"
  | "compaction.done"
  | "team_task.changed"
  | "message.erased"
  | "conversation.changed"
  | "conversation.deleted"
  | "step.delta"
  | "step.ended"
  | "step.started"
  | "team.turn"
  | "tool.progress";
export type Events = readonly EventName[];
export const EVENTS: Events;

export type GetHealth = HealthShape;

export type GetInfo = ServerInfoShape;

export type GetConversations = ConversationListShape;

export type PostConversations = ConversationHeadShape;

export type GetNames = NameListShape;

export type GetConversationsOne = ConversationHeadShape;

export type PatchConversationsOne = ConversationHeadShape;

export type DeleteTrash = TrashResultShape;

export type PostConversationsFork = ConversationHeadShape;

export type GetConversationsMessages = MessageRangeShape;

export type PostConversationsMessages = AppendResultShape;

export type PostConversationsQuery = QueryResultShape;

export type GetConversationsFind = FindResultShape;

export type GetConversationsMarks = Array<MarkedMessageShape>;

export type PutConversationsMarksOne = MarkResultShape;

export type DeleteConversationsMarksOne = MarkResultShape;

export type GetConversationsAnnotations = Array<AnnotationItemShape>;

export type PutConversationsAnnotations = AnnotationItemShape;

export type GetSearch = SearchResultShape;

export type PostMarkdown = Array<MarkdownTreeShape>;

export type PostConversationsOperations = ChangeResultShape;

export type PostConversationsPrice = ImpactReportShape;

export type GetConversationsDeferred = WaitingEditsShape;

export type PostConversationsDeferred = WaitingEditShape;

export type DeleteConversationsDeferredOne = WaitingEditShape;

export type PostConversationsMerge = ChangeResultShape;

export type PostConversationsErase = EraseReceiptShape;

export type PostConversationsPrune = PrunedShape;

export type GetConversationsVersions = VersionListShape;

export type GetConversationsAlternatives = AlternativeListShape;

export type GetConversationsDiff = VersionDiffShape;

export type PostConversationsUndo = ChangeResultShape;

export type PostConversationsRedo = ChangeResultShape;

export type PostConversationsRollback = ChangeResultShape;

export type PostConversationsRestore = ChangeResultShape;

export type PostImport = ImportResultShape;

export type PostConvert = ConvertResultShape;

export type GetConversationsVerify = VerifyResultShape;

export type GetTranscripts = TranscriptListShape;

export type PostTranscripts = BringInResultShape;

export type PostExamples = ExamplesResultShape;

export type GetConversationsStep = StepStatusShape;

export type PostConversationsStep = StepStartedShape;

export type GetConversationsCalls = OpenCallsShape;

export type GetConversationsCache = CacheLedgerShape;

export type PostConversationsCallsOne = StepStartedShape;

export type PostConversationsCallsRerun = StepStartedShape;

export type GetConversationsCallsTraceback = CallTracebackShape;

export type PostFiles = FilesReportShape;

export type GetConversationsContext = AgentPromptShape;

export type GetConversationsExplain = ExplainedPromptShape;

export type GetConversationsRequest = ProviderRequestShape;

export type GetConversationsTokens = TokenReportShape;

export type PostConversationsCompact = CompactionReportShape;

export type GetConversationsRuns = RunPageShape;

export type GetConversationsCosts = CostReportShape;

export type GetCosts = StoreCostsShape;

export type GetConversationsTeam = TeamReportShape;

export type PutConversationsTeam = TeamReportShape;

export type PostConversationsTeamSay = SayResultShape;

export type PostConversationsTeamRun = StepStartedShape;

export type PostConversationsTeamPause = TeamReportShape;

export type PostConversationsTeamResume = TeamReportShape;

export type PostConversationsTeamCancel = TeamReportShape;

export type GetConversationsTeamMembersSees = ExplainedPromptShape;

export interface ActivityShape {
  stepping: boolean;
  waiting: number;
}

export interface AddressedCountShape {
  from: string;
  to: string;
  count: number;
}

export interface AgentPartShape {
  type: "agent";
  id: string;
  sessionID: string;
  messageID: string;
  name: string;
  source?: SourceTextShape | null;
}

export interface AgentPromptShape {
  version: number;
  contextMessages: Array<ContextMessageShape>;
  currentMessage: string;
  teamTask: string | null;
  maxBytes: number;
  prompt: string;
  systemFlag: string | null;
}

export interface AllowedToolShape {
  tool: string;
  by: string | null;
  at: number | null;
}

export interface AlternativeShape {
  message: string;
  conversation: string;
  version: number;
  model: string | null;
  at: number;
}

export interface AlternativeListShape {
  version: number;
  items: Array<MessageAlternativesShape>;
}

export interface AnnotationItemShape {
  message: string;
  index: number | null;
  note: string;
  score: number | null;
  at: number;
  by: string | null;
}

export interface AppendResultShape {
  version: number;
  length: number;
  items: Array<MessageItemShape>;
}

export interface AssistantInfoShape {
  role: "assistant";
  agent?: string | null;
  mode?: string | null;
  model?: ModelRefShape | null;
  path?: WorkingPathShape | null;
  cost?: number | null;
  costComputed?: boolean;
  tokens?: TokenCountsShape | null;
  completed?: number | null;
  finish?: string | null;
  error?: Record<string, any> | null;
  summary?: boolean | null;
}

export interface BatchInfoShape {
  batch: number;
  boundary: number;
  length: number;
  at: number | null;
  description: string | null;
  versions: [number, number] | null;
}

export interface BringInResultShape {
  conversations: Array<BroughtInConversationShape>;
}

export interface BrokenPairShape {
  callID: string;
  tool: string;
  missing: "call" | "result";
}

export interface BroughtInConversationShape {
  action: "appended" | "busy" | "created" | "failed" | "kept" | "replaced" | "unchanged";
  id: string | null;
  title: string | null;
  length: number;
  added: number;
  detail: string;
  lost: number;
}

export interface CacheCountsShape {
  read?: number;
  write?: number;
}

export interface CacheLedgerShape {
  version: number;
  items: Array<StepCacheShape>;
  breaks: Record<string, number>;
}

export interface CallTracebackShape {
  traceback: string | null;
}

export interface ChangeResultShape {
  version: number;
  result: OperationOutcomeShape;
}

export interface ClashDetailsShape {
  what: string;
  ours: string;
  theirs: string;
}

export interface CompactionPartShape {
  type: "compaction";
  id: string;
  sessionID: string;
  messageID: string;
  auto: boolean;
  overflow?: boolean | null;
  tail_start_id?: string | null;
}

export interface CompactionReportShape {
  version: number;
  done: boolean;
  before: ConversationSizeShape;
  after: ConversationSizeShape;
  removed: Array<RemovedMessageShape>;
  added: Array<MessageShape>;
  cacheLost: number;
  result: CompactionSavingsShape | null;
}

export interface CompactionSavingsShape {
  strategy: string;
  detail: string;
  saved: number;
}

export interface CompletedTimeShape {
  start: number;
  end: number;
  compacted?: number | null;
}

export interface ContextEntryShape {
  id: string;
  handle: string | null;
  from: string;
  to: string;
  kept: boolean;
  reason: "bytes" | "current" | "duplicate" | "erased" | "fits" | "no text" | "not addressed" | "role" | "tokens";
  bytes: number;
  tokens: number;
  text: string;
}

export interface ContextExplanationShape {
  agent: string;
  agentType: string;
  window: number;
  visibility: string;
  maxBytes: number;
  maxTokens: number | null;
  bytes: number;
  tokens: number;
  parts: Array<PromptPartShape>;
  entries: Array<ContextEntryShape>;
  older: number;
  since: PromptComparisonShape | null;
}

export interface ContextMessageShape {
  from: string;
  to: string;
  content: string;
}

export interface ConversationCostShape {
  id: string;
  title: string | null;
  calls: number;
  cost: number | null;
}

export interface ConversationHeadShape {
  id: string;
  title: string | null;
  tags: Array<string>;
  version: number;
  length: number;
  created: number;
  updated: number;
  parent: string | null;
  origin: number | null;
  owner: string | null;
  status: "active" | "archived" | "trashed";
  pinned: boolean;
  preview?: string;
  name?: string;
  state?: ActivityShape;
  canUndo?: boolean;
  canRedo?: boolean;
  settings?: ConversationSettingsShape;
}

export interface ConversationListShape {
  items: Array<ConversationHeadShape>;
  next: string | null;
}

export interface ConversationSettingsShape {
  options: Record<string, any>;
  tools: boolean | Array<string> | null;
}

export interface ConversationSizeShape {
  messages: number;
  tokens: number;
}

export interface ConvertResultShape {
  from: string;
  document: any;
  notes: Array<NoteShape>;
}

export interface CostPointShape {
  at: number;
  calls: number;
  unknownCosts: number;
  cost: number | null;
  prompt: number;
  completion: number;
  cacheRead: number;
  cacheWrite: number;
}

export interface CostReportShape {
  version: number;
  usage: UsageTotalsShape;
  unknownCosts: number;
  dated: number;
  bucket: number;
  points: Array<CostPointShape>;
  read: number;
  length: number;
  complete: boolean;
}

export interface CreatedShape {
  created: number;
}

export interface DiffedMessageShape {
  index: number;
  message: MessageShape;
}

export interface DraftCallShape {
  callID: string;
  tool: string;
  text: string;
}

export interface EraseReceiptShape {
  messageID: string;
  erasedAt: number;
  messages: number;
  summaries: number;
  places: number;
  versions: number;
  records: number;
  outOfReach: Array<string>;
}

export interface ExamplesResultShape {
  id: string;
  created: boolean;
}

export interface ExplainedPromptShape {
  version: number;
  contextMessages: Array<ContextMessageShape>;
  currentMessage: string;
  teamTask: string | null;
  maxBytes: number;
  prompt: string;
  systemFlag: string | null;
  explain: ContextExplanationShape;
  previousPrompt: string | null;
}

export interface FilePartShape {
  type: "file";
  id: string;
  sessionID: string;
  messageID: string;
  mime: string;
  url: string;
  filename?: string | null;
  source?: FileSourceShape | SymbolSourceShape | ResourceSourceShape | null;
}

export interface FileSourceShape {
  type: "file";
  path: string;
  text: SourceTextShape;
}

export interface FileSupportShape {
  filename: string;
  mime: string;
  size: number;
  reads: "file" | "nothing" | "text";
}

export interface FilesReportShape {
  model: string;
  items: Array<FileSupportShape>;
}

export interface FindResultShape {
  version: number;
  length: number;
  indices: Array<number>;
}

export interface ForkInfoShape {
  id: string;
  title: string | null;
  at: number;
  version: number;
  length: number;
}

export interface ForkOriginShape {
  id: string;
  at: number;
}

export interface HealthShape {
  status: "ok";
  version: string;
}

export interface ImpactCostShape {
  model: string | null;
  cache: "cold" | "expired" | "warm";
  now: number | null;
  later: number | null;
  paysAfter: number | null;
  reason: "never-pays" | "no-model" | "no-price" | null;
}

export interface ImpactReportShape {
  version: number;
  before: ConversationSizeShape;
  after: ConversationSizeShape;
  tokensFreed: number;
  tokensAdded: number;
  cacheLost: number;
  cost: ImpactCostShape;
  source: "estimate" | "tokenizer";
  removedCount: number;
  addedCount: number;
  removed: Array<MessageBriefShape>;
  pairsBroken: Array<BrokenPairShape>;
}

export interface ImportResultShape {
  from: string;
  conversations: Array<ImportedConversationShape>;
  known: Array<string>;
  report: Array<NoteShape>;
}

export interface ImportedConversationShape {
  id: string;
  title: string | null;
  length: number;
}

export interface LineRangeShape {
  start: PositionShape;
  end: PositionShape;
}

export interface MarkResultShape {
  version: number;
}

export interface MarkdownTreeShape {
  blocks: any;
  settled: number;
  offset: number;
  plain: "deep" | "large" | "long" | "slow" | null;
}

export interface MarkedMessageShape {
  name: string;
  message: string;
  index: number | null;
  handle: string | null;
}

export interface MessageShape {
  role: "assistant" | "system" | "tool" | "user";
  content: string | Array<MessagePartShape>;
  id?: string;
  timestamp?: number;
  metadata?: Record<string, any>;
  speaker?: SpeakerShape | null;
  routing?: RoutingShape | null;
  info?: UserInfoShape | AssistantInfoShape | null;
}

export interface MessageAlternativesShape {
  index: number;
  current: number;
  items: Array<AlternativeShape>;
}

export interface MessageBriefShape {
  index: number;
  id: string;
  role: "assistant" | "system" | "tool" | "user";
  text: string;
}

export interface MessageItemShape {
  index: number;
  handle: string | null;
  message: MessageShape;
  marks: Array<string>;
  tokens?: number;
  orphans?: Array<string>;
}

export type MessagePartShape = TextPartShape | ReasoningPartShape | ToolCallPartShape | ToolPartShape | StepStartPartShape | StepFinishPartShape | FilePartShape | CompactionPartShape | RetryPartShape | SubtaskPartShape | AgentPartShape | PatchPartShape | SnapshotPartShape | Record<string, any>;

export interface MessageRangeShape {
  version: number;
  length: number;
  start: number;
  items: Array<MessageItemShape>;
}

export interface ModelInfoShape {
  name: string;
  label: string;
  ready: boolean;
  isDefault: boolean;
  why?: string | null;
}

export interface ModelRefShape {
  providerID: string;
  modelID: string;
  variant?: string | null;
}

export interface NameListShape {
  items: Array<NamedConversationShape>;
}

export interface NamedConversationShape {
  id: string;
  name: string | null;
  updated: number;
}

export interface NoteShape {
  action: "lost" | "repaired";
  where: string;
  rule: string;
  detail: string;
  messageId?: string | null;
}

export interface OpenCallShape {
  id: string;
  callID: string;
  messageID: string;
  tool: string;
  state: ToolPendingShape | ToolRunningShape | ToolCompletedShape | ToolErrorShape;
  asksFirst: boolean;
  stray: boolean;
  digest?: string;
}

export interface OpenCallsShape {
  version: number;
  items: Array<OpenCallShape>;
  allowed: Array<AllowedToolShape>;
}

export interface OperationOutcomeShape {
  affectedBatchIndex: number;
  stats: StatsShape;
}

export interface PatchPartShape {
  type: "patch";
  id: string;
  sessionID: string;
  messageID: string;
  hash: string;
  files: Array<string>;
}

export interface PositionShape {
  line: number;
  character: number;
}

export interface ProblemDetailsShape {
  type?: string;
  title: string;
  status: number;
  detail: string;
  name?: string;
  path?: string;
  rule?: string;
  clashes?: Array<ClashDetailsShape>;
  version?: number;
  facts?: Record<string, any>;
}

export interface PromptComparisonShape {
  version: number;
  added: Array<string>;
  gone: Array<string>;
  stayed: Array<string>;
  bytes: number;
  systemChanged: boolean;
  teamTaskChanged: boolean;
}

export interface PromptPartShape {
  name: string;
  bytes: number;
  tokens: number;
}

export interface ProviderRequestShape {
  version: number;
  format: "anthropic" | "gemini" | "openai-chat" | "openai-responses";
  model: string | null;
  provider: string | null;
  request: Record<string, any>;
  notes: Array<RequestNoteShape>;
  problems: Array<RequestNoteShape>;
  tokens: number;
}

export interface PrunedShape {
  conversation: string;
  messages: Array<string>;
  bytes: number;
  done: boolean;
}

export interface QueryItemShape {
  index: number | null;
  message: MessageShape;
}

export interface QueryResultShape {
  version: number;
  total: number;
  items: Array<QueryItemShape>;
}

export interface QueuedTurnShape {
  id: string;
  member: string;
  priority: number;
}

export interface ReasoningPartShape {
  type: "reasoning";
  id: string;
  sessionID: string;
  messageID: string;
  text: string;
  time: TextTimeShape;
  metadata?: Record<string, any>;
}

export interface RemovedMessageShape {
  index: number;
  id: string;
  role: "assistant" | "system" | "tool" | "user";
  tokens: number;
  text: string;
}

export interface RequestNoteShape {
  action: "left-out" | "repaired" | "unsupported";
  path: string;
  what: string;
  why: string;
  rule: string;
  refused: boolean;
  messageID?: string;
}

export interface ResourceSourceShape {
  type: "resource";
  clientName: string;
  uri: string;
  text: SourceTextShape;
}

export interface RetryPartShape {
  type: "retry";
  id: string;
  sessionID: string;
  messageID: string;
  attempt: number;
  error: Record<string, any>;
  time: CreatedShape;
}

export interface RoleTokensShape {
  system?: number;
  user?: number;
  assistant?: number;
  tool?: number;
}

export interface RoutingShape {
  resolvedAddressees?: Array<string>;
  extra?: Record<string, any>;
}

export interface RunCacheShape {
  read: number;
  written: number;
  expected?: number | null;
  lost?: number;
  cause?: string | null;
}

export interface RunCallShape {
  callID: string;
  tool: string;
  status: "completed" | "error" | "incomplete" | "missing" | "orphan" | "pending" | "running";
  start?: number | null;
  end?: number | null;
  index?: number | null;
  error?: string | null;
}

export interface RunPageShape {
  version: number;
  length: number;
  start: number;
  stop: number;
  turns: Array<RunTurnShape>;
}

export interface RunRetryShape {
  attempt: number;
  at: number;
  error: string;
}

export interface RunStepShape {
  index: number;
  id: string;
  start: number;
  end: number | null;
  outcome: "failed" | "finished" | "interrupted";
  finish: string | null;
  error: string | null;
  agent: string | null;
  model: string | null;
  tokens: TokenCountsShape | null;
  cost: number | null;
  costComputed: boolean;
  cache: RunCacheShape | null;
  retries: Array<RunRetryShape>;
  calls: Array<RunCallShape>;
}

export interface RunTurnShape {
  start: number;
  stop: number;
  role: "assistant" | "system" | "tool" | "user";
  at: number;
  text: string;
  partial: boolean;
  steps: Array<RunStepShape>;
  results: Array<RunCallShape>;
}

export interface RunningTimeShape {
  start: number;
}

export interface SayResultShape {
  version: number;
  message: MessageShape;
  step: string | null;
}

export interface SearchHitShape {
  conversation: string;
  title: string | null;
  index: number | null;
  message: MessageShape;
  snippet: string;
  seenIn?: number | null;
  seenAt?: number | null;
  status?: "active" | "archived" | "trashed";
}

export interface SearchResultShape {
  items: Array<SearchHitShape>;
}

export interface ServerInfoShape {
  version: string;
  store: "memory" | "other" | "postgres" | "sqlite";
  readOnly: boolean;
  models: Array<ModelInfoShape>;
  tools: Array<ToolInfoShape>;
  formats: Array<string>;
  teams: Array<TeamInfoShape>;
  limits: ServerLimitsShape;
  cursor: string;
  discovers: boolean;
}

export interface ServerLimitsShape {
  body: number;
  steps: number;
  file: number;
  files: number;
}

export interface SnapshotPartShape {
  type: "snapshot";
  id: string;
  sessionID: string;
  messageID: string;
  snapshot: string;
}

export interface SourceTextShape {
  value: string;
  start: number;
  end: number;
}

export interface SpeakerShape {
  roleId: string;
  roleName: string;
  type: "ai" | "human";
  extra?: Record<string, any>;
}

export interface StatsShape {
  totalMessages: number;
  currentBatchMessages: number;
  totalBatches: number;
  currentBatchIndex: number;
}

export interface StepCacheShape {
  message: string;
  at: number;
  expected: number;
  shared: number;
  read: number | null;
  written: number | null;
  lost: number;
  cause: "compaction" | "edit" | "expiry" | "fork" | "model-changed" | "options-changed" | "tools-changed" | "unknown" | null;
  idle: number | null;
}

export interface StepDraftShape {
  text?: string;
  reasoning?: string;
  calls?: Array<DraftCallShape>;
  answer?: number;
}

export interface StepFinishPartShape {
  type: "step-finish";
  id: string;
  sessionID: string;
  messageID: string;
  reason: string;
  tokens: TokenCountsShape;
  cost?: number | null;
  costComputed?: boolean;
  snapshot?: string | null;
}

export interface StepStartPartShape {
  type: "step-start";
  id: string;
  sessionID: string;
  messageID: string;
  snapshot?: string | null;
}

export interface StepStartedShape {
  step: string | null;
  version: number;
}

export interface StepStatusShape {
  running: boolean;
  elsewhere?: boolean;
  step?: string;
  since?: number;
  model?: string;
  draft?: StepDraftShape;
}

export interface StoreCostsShape {
  since: number;
  until: number;
  bucket: number;
  points: Array<CostPointShape>;
  total: CostPointShape;
  top: Array<ConversationCostShape>;
  conversations: number;
  counted: number;
  complete: boolean;
  older: boolean;
}

export interface SubtaskPartShape {
  type: "subtask";
  id: string;
  sessionID: string;
  messageID: string;
  prompt: string;
  description: string;
  agent: string;
  model?: ModelRefShape | null;
  command?: string | null;
}

export interface SummaryShape {
  title?: string | null;
  body?: string | null;
  diffs?: Array<Record<string, any>> | null;
}

export interface SymbolSourceShape {
  type: "symbol";
  path: string;
  range: LineRangeShape;
  name: string;
  kind: number;
  text: SourceTextShape;
}

export interface TeamInfoShape {
  conversation: string;
  title: string | null;
}

export interface TeamMemberShape {
  id: string;
  name: string;
  kind: "ai" | "command" | "human" | "model";
  model?: string;
  window?: number;
  visibility?: string;
}

export interface TeamReportShape {
  version: number;
  roster: boolean;
  name: string | null;
  members: Array<TeamMemberShape>;
  queue: Array<QueuedTurnShape>;
  state: TeamStatusShape;
  spoke: Array<AddressedCountShape>;
  task: string | null;
}

export interface TeamStatusShape {
  running: boolean;
  paused: boolean;
  turns: number;
  begun: QueuedTurnShape | null;
  floor: string | null;
  why: string;
  human: string | null;
}

export interface TextPartShape {
  type: "text";
  id: string;
  sessionID: string;
  messageID: string;
  text: string;
  synthetic?: boolean | null;
  ignored?: boolean | null;
  time?: TextTimeShape | null;
  metadata?: Record<string, any>;
}

export interface TextTimeShape {
  start?: number | null;
  end?: number | null;
}

export interface TokenCountsShape {
  input: number;
  output: number;
  reasoning: number;
  cache: CacheCountsShape;
  total?: number | null;
}

export interface TokenReportShape {
  version: number;
  total: number;
  other: number;
  source: "api" | "estimate" | "local" | "tokenizer";
  limit: number | null;
  window: number | null;
  model: string;
  byRole: RoleTokensShape;
  items: Array<TokenShareShape>;
  usage: UsageTotalsShape;
}

export interface TokenShareShape {
  start: number;
  stop: number;
  tokens: number;
  index?: number;
  role?: "assistant" | "system" | "tool" | "user";
}

export interface ToolCallPartShape {
  type: "tool-call";
  id: string;
  sessionID: string;
  messageID: string;
  callID: string;
  tool: string;
  input: Record<string, any>;
  raw: string;
  metadata?: Record<string, any>;
}

export interface ToolCompletedShape {
  status: "completed";
  input: Record<string, any>;
  output: string;
  title: string;
  metadata: Record<string, any>;
  time: CompletedTimeShape;
  attachments?: Array<FilePartShape>;
}

export interface ToolErrorShape {
  status: "error";
  input: Record<string, any>;
  error: string;
  metadata?: Record<string, any>;
  time: ToolTimeShape;
}

export interface ToolInfoShape {
  name: string;
  description: string;
  schema: Record<string, any>;
}

export interface ToolPartShape {
  type: "tool";
  id: string;
  sessionID: string;
  messageID: string;
  callID: string;
  tool: string;
  state: ToolPendingShape | ToolRunningShape | ToolCompletedShape | ToolErrorShape;
  metadata?: Record<string, any>;
}

export interface ToolPendingShape {
  status: "pending";
  input: Record<string, any>;
  raw: string;
}

export interface ToolRunningShape {
  status: "running";
  input: Record<string, any>;
  title?: string | null;
  metadata?: Record<string, any>;
  time: RunningTimeShape;
}

export interface ToolTimeShape {
  start: number;
  end: number;
}

export interface TranscriptInfoShape {
  key: string;
  program: string;
  name: string;
  size: number;
  modified: number;
  imported: boolean;
  title?: string | null;
}

export interface TranscriptListShape {
  programs: Record<string, string>;
  transcripts: Array<TranscriptInfoShape>;
  problems: Array<string>;
}

export interface TrashResultShape {
  deleted: number;
  kept: Array<string>;
}

export interface UsageTotalsShape {
  last: TokenCountsShape | null;
  total: TokenCountsShape;
  cost: number | null;
  calls: number;
  promptTokens: number;
  completionTokens: number;
}

export interface UserInfoShape {
  role: "user";
  agent?: string | null;
  model?: ModelRefShape | null;
  system?: string | null;
  tools?: Record<string, boolean> | null;
  variant?: string | null;
  summary?: SummaryShape | null;
}

export interface VerifyResultShape {
  problems: Array<string>;
  notes: Array<string>;
  whole: boolean;
}

export interface VersionDiffShape {
  before: number;
  after: number;
  beforeLength: number;
  afterLength: number;
  removedCount: number;
  addedCount: number;
  removed: Array<DiffedMessageShape>;
  added: Array<DiffedMessageShape>;
}

export interface VersionInfoShape {
  version: number;
  kind: string;
  at: number;
  added: number;
  length: number;
  batch: number;
  description: string;
  returns?: number;
}

export interface VersionListShape {
  version: number;
  first: number;
  items: Array<VersionInfoShape>;
  next: number | null;
  batches: Array<BatchInfoShape>;
  forks: Array<ForkInfoShape>;
  undo: boolean;
  redo: boolean;
  parent?: ForkOriginShape;
}

export interface WaitingEditShape {
  id: string;
  at: number;
  version: number;
  detail: string;
  operations: Array<Record<string, any>>;
  removedCount: number;
  addedCount: number;
  tokens: number;
  problem: string | null;
}

export interface WaitingEditsShape {
  version: number;
  items: Array<WaitingEditShape>;
}

export interface WorkingPathShape {
  cwd: string;
  root: string;
}
