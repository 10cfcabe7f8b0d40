#include "telemetry/metric.h"

#include <array>

namespace outboard::telemetry {
namespace {

using Names = std::string_view;

constexpr Names kLevels[] = {"debug", "info", "warning", "error"};
constexpr Names kStates[] = {"queued", "starting", "live",   "detached",
                             "parked", "orphaned", "stored"};
constexpr Names kDirections[] = {"in", "out"};
constexpr Names kLookups[] = {"hit", "miss"};
constexpr Names kSessionEnds[] = {"closed", "lost"};
constexpr Names kWorkerLosses[] = {"disconnected", "silent"};
constexpr Names kOffences[] = {"other_session", "claim", "future_epoch", "unsent_item",
                               "device_time",   "receipt", "receipt_conflict"};
constexpr Names kDeviceUses[] = {"busy", "free", "out_of_service"};
constexpr Names kVerdicts[] = {"known", "passed", "refused"};
constexpr Names kExecutorEnds[] = {"orderly", "crashed", "step_too_long", "device_failed",
                                   "launch_too_long"};
constexpr Names kStoredKinds[] = {"snapshot", "checkpoint"};
constexpr Names kCompileResults[] = {"ok", "failed"};
constexpr Names kScrapeResults[] = {"ok", "refused"};
constexpr Names kLeaseEnds[] = {"closed",        "idle",        "abandoned", "refused",
                                "executor_lost", "worker_lost", "no_device", "no_credit",
                                "gateway_stopped", "other"};
constexpr Names kRefusals[] = {
    "no_key",        "key",      "key_address", "scope",    "fleet_secret",   "executor_token",
    "first_message", "protocol", "no_session",  "sessions", "no_device",      "graph",
    "quota",         "rate",     "connections", "streams",  "stalled_reader", "ledger",
    "credit",        "stopping", "invalid",     "not_found", "fault",     "other"};
constexpr Names kMethods[] = {
    "Cloud.Session", "Cloud.Values", "Fleet.Join", "Fleet.Attach", "Fleet.Keep", "Fleet.Enrol",
    "Fleet.EnrolNode", "Fleet.NodeLog", "Blobs.Missing", "Blobs.Upload", "Blobs.Commit",
    "Blobs.List", "Blobs.Download", "Store.List", "Store.Get", "Store.Set", "Store.Remove",
    "Store.Pin", "Store.Usage", "Account.CreateKey", "Account.ListKeys", "Account.RevokeKey",
    "Account.Usage", "Account.Invoice", "Account.ListSessions", "Account.StopSession",
    "Fleet.JoinAtClients"};
constexpr Names kCodeNames[kCodes] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

static_assert(std::size(kRefusals) == static_cast<size_t>(Refusal::kOther) + 1);
static_assert(std::size(kMethods) == static_cast<size_t>(CallMethod::kRefusedJoin) + 1);
static_assert(std::size(kLeaseEnds) == static_cast<size_t>(LeaseEndLabel::kOther) + 1);
static_assert(std::size(kOffences) == static_cast<size_t>(WorkerOffence::kReceiptConflict) + 1);
static_assert(std::size(kStates) == static_cast<size_t>(SessionStateLabel::kStored) + 1);

// Hardware classes come from workers; accounts are numbered.
constexpr size_t kClassesMax = 16;
constexpr size_t kAccountsMax = 200;

constexpr Label kByLevel[] = {{"level", kLevels}};
constexpr Label kByState[] = {{"state", kStates}};
constexpr Label kByDirection[] = {{"direction", kDirections}};
constexpr Label kByLookup[] = {{"result", kLookups}};
constexpr Label kBySessionEnd[] = {{"how", kSessionEnds}};
constexpr Label kByWorkerLoss[] = {{"how", kWorkerLosses}};
constexpr Label kByOffence[] = {{"kind", kOffences}};
constexpr Label kByDeviceUse[] = {{"state", kDeviceUses}};
constexpr Label kByVerdict[] = {{"result", kVerdicts}};
constexpr Label kByExecutorEnd[] = {{"how", kExecutorEnds}};
constexpr Label kByStoredKind[] = {{"what", kStoredKinds}};
constexpr Label kByCompileResult[] = {{"result", kCompileResults}};
constexpr Label kByScrapeResult[] = {{"result", kScrapeResults}};
constexpr Label kByLeaseEnd[] = {{"reason", kLeaseEnds}};
constexpr Label kByRefusal[] = {{"reason", kRefusals}};
constexpr Label kByCall[] = {{"method", kMethods}, {"code", kCodeNames}};
constexpr Label kByMethod[] = {{"method", kMethods}};
constexpr Label kByClass[] = {{"class", {}, kClassesMax}};
constexpr Label kByAccount[] = {{"account", {}, kAccountsMax}};
constexpr Label kByBuild[] = {{"version", {}, 1}, {"protocol", {}, 1}, {"graph_schema", {}, 1}};

// From a call within a machine to a wait for a device.
constexpr double kTimes[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                             0.25,   0.5,   1,      2.5,   5,    10,    30};
// From a step to a night.
constexpr double kLeaseTimes[] = {1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600};

constexpr double kMicro = 1e-6;
constexpr double kMilli = 1e-3;

using enum MetricType;

constexpr std::array<MetricInfo, kMetrics> kTable = {{
    {Metric::kBuildInfo, "outboard_build_info", kGauge, kInAll,
     "1, with the version of the program, of its protocol and of its graphs.", kByBuild},
    {Metric::kProcessCpu, "process_cpu_seconds_total", kCounter, kInAll,
     "Processor time of this process, without its executors."},
    {Metric::kProcessStart, "process_start_time_seconds", kGauge, kInAll,
     "When the process started, in seconds since 1970."},
    {Metric::kProcessResident, "process_resident_memory_bytes", kGauge, kInAll,
     "Memory of this process in RAM, without its executors."},
    {Metric::kProcessVirtual, "process_virtual_memory_bytes", kGauge, kInAll,
     "Address space of this process."},
    {Metric::kProcessOpenFds, "process_open_fds", kGauge, kInAll,
     "Open descriptors. At process_max_fds nobody can connect any more."},
    {Metric::kProcessMaxFds, "process_max_fds", kGauge, kInAll,
     "Descriptors that the process may have open."},
    {Metric::kProcessThreads, "process_threads", kGauge, kInAll, "Threads of this process."},
    {Metric::kLogEvents, "outboard_log_events_total", kCounter, kInAll,
     "Events that were written to the log.", kByLevel},
    {Metric::kLogSuppressed, "outboard_log_events_suppressed_total", kCounter, kInAll,
     "Events that were not logged, since there were too many of their name."},
    {Metric::kLogDropped, "outboard_log_events_dropped_total", kCounter, kInAll,
     "Events that were lost, since whatever reads the log was too slow."},
    {Metric::kScrapes, "outboard_scrapes_total", kCounter, kInAll,
     "Requests for /metrics before this one.", kByScrapeResult},

    {Metric::kSessions, "outboard_sessions", kGauge, kInGateway,
     "Sessions by state (docs/architecture/gateway.md).", kByState},
    {Metric::kSessionsOpened, "outboard_sessions_opened_total", kCounter, kInGateway,
     "Sessions that got their first device."},
    {Metric::kSessionsResumed, "outboard_sessions_resumed_total", kCounter, kInGateway,
     "Times that a session went on after a lost connection or a lost worker."},
    {Metric::kSessionsEnded, "outboard_sessions_ended_total", kCounter, kInGateway,
     "Sessions that ended, as their rows say: closed, or lost with a worker.", kBySessionEnd},
    {Metric::kSessionsMoved, "outboard_sessions_moved_total", kCounter, kInGateway,
     "Executors that were replaced on another worker under a connected client."},
    {Metric::kOpenTime,
     "outboard_session_open_seconds",
     kHistogram,
     kInGateway,
     "From a client's Open to its session going live: the wait for a device, and for an executor.",
     {},
     kMicro,
     kTimes},
    {Metric::kQueueLength, "outboard_queue_sessions", kGauge, kInGateway,
     "Sessions that wait for a device."},
    {Metric::kQueueOldest, "outboard_queue_oldest_seconds", kGauge, kInGateway,
     "How long the first of them has waited."},
    {Metric::kQueueWait,
     "outboard_queue_wait_seconds",
     kHistogram,
     kInGateway,
     "How long a session waited until it was placed on a worker; 0 where a device was free.",
     {},
     kMicro,
     kTimes},

    {Metric::kWorkers, "outboard_workers", kGauge, kInGateway, "Workers that have joined."},
    {Metric::kWorkerJoins, "outboard_worker_joins_total", kCounter, kInGateway,
     "Times that a worker joined."},
    {Metric::kWorkersLost, "outboard_workers_lost_total", kCounter, kInGateway,
     "Workers whose connection ended, or which sent no heartbeat in time.", kByWorkerLoss},
    {Metric::kDevices, "outboard_devices", kGauge, kInGateway,
     "Devices of the workers that have joined.", kByDeviceUse},
    {Metric::kGrants, "outboard_grants_total", kCounter, kInGateway,
     "Leases that began: a session was given devices, and is billed from then on."},
    {Metric::kLeasesEnded, "outboard_leases_ended_total", kCounter, kInGateway,
     "Leases that ended, by reason.", kByLeaseEnd},
    {Metric::kLeaseTime,
     "outboard_lease_seconds",
     kHistogram,
     kInGateway,
     "How long leases lasted that have ended.",
     {},
     kMicro,
     kLeaseTimes},
    {Metric::kHeartbeatGap,
     "outboard_heartbeat_gap_seconds",
     kHistogram,
     kInGateway,
     "Time between two heartbeats of one worker.",
     {},
     kMicro,
     kTimes},
    {Metric::kHeartbeatOldest, "outboard_heartbeat_oldest_seconds", kGauge, kInGateway,
     "Time since the last heartbeat of the worker that has been silent longest."},
    {Metric::kWorkersSetAside, "outboard_workers_set_aside", kGauge, kInGateway,
     "Workers that have joined and get no session, since they did what an honest one does not "
     "(docs/runbook.md)."},
    {Metric::kWorkerOffences, "outboard_worker_offences_total", kCounter, kInGateway,
     "Times that a worker did what an honest one does not, by kind.", kByOffence},

    {Metric::kRuns, "outboard_steps_total", kCounter, kInGateway,
     "Runs that were passed to an executor, those that are sent again included."},
    {Metric::kItemFailures, "outboard_step_failures_total", kCounter, kInGateway,
     "Items of sessions that failed."},
    {Metric::kDeviceTime, "outboard_device_seconds_total", kCounter, kInGateway,
     "Time that devices computed, by class of hardware, as executors report it.", kByClass, kMicro},
    {Metric::kClientBytes, "outboard_client_bytes_total", kCounter, kInGateway,
     "Bytes of frames on the streams of clients.", kByDirection},
    {Metric::kGraphChecks, "outboard_graph_checks_total", kCounter, kInGateway,
     "Graphs by verdict; known: an equal one was verified before.", kByVerdict},
    {Metric::kGraphCheckTime,
     "outboard_graph_check_seconds",
     kHistogram,
     kInGateway,
     "Time to verify a graph that was not known.",
     {},
     kMicro,
     kTimes},
    {Metric::kSnapshots, "outboard_snapshots_total", kCounter, kInGateway,
     "Snapshots of sessions that were kept."},
    {Metric::kSnapshotOldest, "outboard_snapshot_oldest_seconds", kGauge, kInGateway,
     "Of live sessions that can be recovered and are working: the longest time since a snapshot, "
     "or since the session went live. What was computed since would be computed again."},

    {Metric::kCalls, "outboard_calls_total", kCounter, kInGateway,
     "Calls that ended, by method and gRPC code.", kByCall},
    {Metric::kCallTime, "outboard_call_seconds", kHistogram, kInGateway,
     "Duration of calls that are no streams.", kByMethod, kMicro, kTimes},
    {Metric::kRefused, "outboard_refused_total", kCounter, kInGateway,
     "Calls, streams and connections that were refused or cut, by reason (docs/runbook.md).",
     kByRefusal},

    {Metric::kBlobBytes, "outboard_blob_bytes_total", kCounter, kInGateway,
     "Bytes of chunks that were uploaded and downloaded.", kByDirection},
    {Metric::kBlobStored, "outboard_blob_stored_bytes", kGauge, kInGateway,
     "Bytes in the blob store."},
    {Metric::kBlobProtected, "outboard_blob_protected_bytes", kGauge, kInGateway,
     "Those that names, sessions or snapshots use; the others make room when it is needed."},
    {Metric::kBlobQuota, "outboard_blob_quota_bytes", kGauge, kInGateway,
     "What each account may store (--quota); 0: any amount."},
    {Metric::kBlobAccounts, "outboard_blob_accounts", kGauge, kInGateway,
     "Accounts that have something in the store."},
    {Metric::kBlobAccountsNearQuota, "outboard_blob_accounts_near_quota", kGauge, kInGateway,
     "Accounts of which protected blobs take more than nine tenths of the quota."},
    {Metric::kBlobDiskFree, "outboard_data_disk_free_bytes", kGauge, kInGateway,
     "Free bytes on the disk of the data folder."},
    {Metric::kBlobDiskSize, "outboard_data_disk_size_bytes", kGauge, kInGateway,
     "Size of the disk of the data folder."},

    {Metric::kPostings, "outboard_postings_total", kCounter, kInGateway,
     "Charges that were written to the ledger."},
    {Metric::kPostingsRefused, "outboard_postings_refused_total", kCounter, kInGateway,
     "Accounts whose charges the ledger refused; their leases stop. An operator has to look."},
    {Metric::kLedgerAudits, "outboard_ledger_audits_total", kCounter, kInGateway,
     "Audits of the whole ledger: one at the start, and one every hour."},
    {Metric::kLedgerAuditFailed, "outboard_ledger_audit_failed", kGauge, kInGateway,
     "1 if the last audit found that the ledger does not verify: no session is opened then."},
    {Metric::kChargedTime,
     "outboard_charged_device_seconds_total",
     kCounter,
     kInGateway,
     "Device seconds that were charged.",
     {},
     kMilli},
    {Metric::kChargedUsd,
     "outboard_charged_usd_total",
     kCounter,
     kInGateway,
     "US dollars that were charged.",
     {},
     kMicro},
    {Metric::kLedgerQueue, "outboard_ledger_queue_writes", kGauge, kInGateway,
     "Writes to the accounts file that wait."},
    {Metric::kLedgerWriteTime,
     "outboard_ledger_write_seconds",
     kHistogram,
     kInGateway,
     "Time of one write to the accounts file.",
     {},
     kMicro,
     kTimes},
    {Metric::kLedgerErrors, "outboard_ledger_errors_total", kCounter, kInGateway,
     "Writes to the accounts file that failed."},
    {Metric::kLedgerBlocked, "outboard_ledger_blocked", kGauge, kInGateway,
     "1 while the accounts file cannot be written: no session can be opened."},

    {.id = Metric::kAccountSessions,
     .name = "outboard_account_sessions",
     .type = kGauge,
     .processes = kInGateway,
     .help = "Sessions of an account. Only with --metrics-by-account, as all that name an account.",
     .labels = kByAccount,
     .by_account = true},
    {.id = Metric::kAccountChargedTime,
     .name = "outboard_account_charged_device_seconds_total",
     .type = kCounter,
     .processes = kInGateway,
     .help = "Device seconds that an account was charged since this process started.",
     .labels = kByAccount,
     .unit = kMilli,
     .by_account = true},
    {.id = Metric::kAccountChargedUsd,
     .name = "outboard_account_charged_usd_total",
     .type = kCounter,
     .processes = kInGateway,
     .help = "US dollars that an account was charged since this process started.",
     .labels = kByAccount,
     .unit = kMicro,
     .by_account = true},
    {.id = Metric::kAccountStored,
     .name = "outboard_account_stored_bytes",
     .type = kGauge,
     .processes = kInGateway,
     .help = "Bytes of an account in the blob store.",
     .labels = kByAccount,
     .by_account = true},

    {Metric::kWorkerJoined, "outboard_worker_joined", kGauge, kInWorker,
     "1 while the gateway knows this worker."},
    {Metric::kWorkerJoinAttempts, "outboard_worker_join_attempts_total", kCounter, kInWorker,
     "Times that this worker connected to its gateway, or tried to."},
    {Metric::kWorkerAckAge, "outboard_worker_heartbeat_ack_age_seconds", kGauge, kInWorker,
     "Time since the gateway last answered a heartbeat."},
    {Metric::kWorkerDevices, "outboard_worker_devices", kGauge, kInWorker,
     "Sessions that this worker serves at a time."},
    {Metric::kWorkerDevicesOut, "outboard_worker_devices_out_of_service", kGauge, kInWorker,
     "Devices that get no session any more, because they failed (docs/gpu-workers.md)."},
    {Metric::kWorkerSessions, "outboard_worker_sessions", kGauge, kInWorker,
     "Executors that serve a session."},
    {Metric::kWorkerSpares, "outboard_worker_spare_executors", kGauge, kInWorker,
     "Executors that are ready for the next session."},
    {Metric::kWorkerMemoryLimit, "outboard_worker_session_memory_limit_bytes", kGauge, kInWorker,
     "What a session may hold here."},
    {Metric::kExecutorsStarted, "outboard_executors_started_total", kCounter, kInWorker,
     "Executors that were given a session."},
    {Metric::kExecutorsEnded, "outboard_executors_ended_total", kCounter, kInWorker,
     "Executors that ended, by how.", kByExecutorEnd},
    {.id = Metric::kWorkerSteps,
     .name = "outboard_worker_steps_total",
     .type = kCounter,
     .processes = kInWorker,
     .help = "Runs that executors have applied.",
     .from_executors = true},
    {.id = Metric::kWorkerDeviceTime,
     .name = "outboard_worker_device_seconds_total",
     .type = kCounter,
     .processes = kInWorker,
     .help = "Time that this worker's devices computed.",
     .unit = kMicro,
     .from_executors = true},
    {.id = Metric::kKernelsCompiled,
     .name = "outboard_kernels_compiled_total",
     .type = kCounter,
     .processes = kInWorker,
     .help = "Kernels that were compiled, those that a search tries included.",
     .labels = kByCompileResult,
     .from_executors = true},
    {.id = Metric::kKernelPlansGivenUp,
     .name = "outboard_kernel_plans_given_up_total",
     .type = kCounter,
     .processes = kInWorker,
     .help = "Kernels that were compiled by another plan than the one that was chosen for them.",
     .from_executors = true},
    {.id = Metric::kCompileTime,
     .name = "outboard_compile_seconds",
     .type = kHistogram,
     .processes = kInWorker,
     .help = "Time of one batch of kernels in the compiler.",
     .unit = kMicro,
     .buckets = kTimes,
     .from_executors = true},
    {.id = Metric::kObjectCache,
     .name = "outboard_object_cache_lookups_total",
     .type = kCounter,
     .processes = kInWorker,
     .help = "Kernels that were looked up among the compiled ones on disk.",
     .labels = kByLookup,
     .from_executors = true},
    {.id = Metric::kLinkedCode,
     .name = "outboard_linked_code_lookups_total",
     .type = kCounter,
     .processes = kInWorker,
     .help = "Kernels of GPUs that were looked up among those that a driver has linked.",
     .labels = kByLookup},
    {.id = Metric::kTuningLookups,
     .name = "outboard_tuning_lookups_total",
     .type = kCounter,
     .processes = kInWorker,
     .help = "Kernels that were looked up in the tuning store; hit: a search had found something.",
     .labels = kByLookup,
     .from_executors = true},
    {Metric::kBlobCache, "outboard_worker_blob_cache_lookups_total", kCounter, kInWorker,
     "Blobs that executors asked for; hit: this machine had it.", kByLookup},
    {Metric::kBlobsPulled, "outboard_worker_blob_pulled_bytes_total", kCounter, kInWorker,
     "Bytes of blobs that were fetched from the gateway."},
    {Metric::kBlobsStored, "outboard_worker_stored_bytes_total", kCounter, kInWorker,
     "Bytes that snapshots and checkpoints sent to the gateway.", kByStoredKind},
    {Metric::kStoreFailures, "outboard_worker_store_failures_total", kCounter, kInWorker,
     "Snapshots and checkpoints that could not be stored.", kByStoredKind},
}};

constexpr bool IsInOrder() {
  for (size_t i = 0; i < kTable.size(); ++i)
    if (static_cast<size_t>(kTable[i].id) != i) return false;
  return true;
}
static_assert(IsInOrder(), "the table has the order of Metric");

std::string_view WordFor(MetricType type) {
  switch (type) {
    case kCounter: return "counter";
    case kGauge: return "gauge";
    case kHistogram: return "histogram";
  }
  return "";
}

std::string LabelsFor(const MetricInfo& info) {
  std::string text;
  for (const Label& label : info.labels) {
    if (!text.empty()) text += "; ";
    text += "`" + std::string(label.name) + "`";
    // Methods and codes are those of the protocol.
    const bool listed = !label.values.empty() && label.name != "code" && label.name != "method";
    for (size_t i = 0; listed && i < label.values.size(); ++i)
      text += (i == 0 ? ": " : ", ") + std::string(label.values[i]);
    if (label.values.empty() && label.values_max > 1)
      text += ": at most " + std::to_string(label.values_max);
  }
  return text;
}

void AddSection(std::string& page, std::string_view title, Processes processes, bool by_account) {
  page += "\n## " + std::string(title) + "\n\n| name | type | labels | what it says |\n";
  page += "| --- | --- | --- | --- |\n";
  for (const MetricInfo& info : kTable) {
    if (info.processes != processes || info.by_account != by_account) continue;
    page += "| `" + std::string(info.name) + "` | " + std::string(WordFor(info.type)) + " | " +
            LabelsFor(info) + " | " + std::string(info.help) + " |\n";
  }
}

}  // namespace

std::span<const MetricInfo, kMetrics> MetricTable() { return kTable; }
const MetricInfo& InfoOf(Metric metric) { return kTable[static_cast<size_t>(metric)]; }

std::string_view NameOf(CallMethod method) { return kMethods[static_cast<size_t>(method)]; }
std::string_view NameOf(WorkerOffence offence) {
  return kOffences[static_cast<size_t>(offence)];
}
std::string_view NameOf(Refusal reason) { return kRefusals[static_cast<size_t>(reason)]; }
std::string_view NameOfCode(int code) {
  return code >= 0 && code < kCodes ? kCodeNames[code] : std::string_view("UNKNOWN");
}

std::string MetricsPage() {
  std::string page =
      "# Metrics\n\n"
      "What a gateway, a worker and `outboard serve` show at `/metrics`, for Prometheus. "
      "`docs/runbook.md` says how to\nscrape them, and what to do when an alert fires.\n\n"
      "This page is made by `outboard metrics ls` from the table in `telemetry/metric.cc`; a "
      "test "
      "fails when the two differ.\n"
      "Seconds and bytes are the units; what counts ends in `_total`. No label has an account, a "
      "session, a key or a name\nunless `--metrics-by-account` is given.\n";
  AddSection(page, "Every process", kInAll, false);
  AddSection(page, "Gateway", kInGateway, false);
  AddSection(page, "Gateway, with `--metrics-by-account`", kInGateway, true);
  AddSection(page, "Worker", kInWorker, false);
  return page;
}

}  // namespace outboard::telemetry
