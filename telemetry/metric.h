// Every metric that a process of Outboard shows at /metrics: one table (metric.cc) of names, types,
// labels and help, from which the exposition, the process-wide cells that count, and the page
// docs/metrics.md are made.
//
// A metric is counted (counters.h: an atomic addition where the thing happens) or sampled
// (samples.h: read when somebody scrapes). Label values are listed here, so that nothing which
// comes from outside becomes one; the few that are not listed say how many there may be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace outboard::telemetry {

// In the order of the table.
enum class Metric : uint16_t {
  // ---- every process
  kBuildInfo,
  kProcessCpu,
  kProcessStart,
  kProcessResident,
  kProcessVirtual,
  kProcessOpenFds,
  kProcessMaxFds,
  kProcessThreads,
  kLogEvents,
  kLogSuppressed,
  kLogDropped,
  kScrapes,
  // ---- the gateway: sessions
  kSessions,
  kSessionsOpened,
  kSessionsResumed,
  kSessionsEnded,
  kSessionsMoved,
  kOpenTime,
  kQueueLength,
  kQueueOldest,
  kQueueWait,
  // ---- the gateway: devices and leases
  kWorkers,
  kWorkerJoins,
  kWorkersLost,
  kDevices,
  kGrants,
  kLeasesEnded,
  kLeaseTime,
  kHeartbeatGap,
  kHeartbeatOldest,
  kWorkersSetAside,
  kWorkerOffences,
  // ---- the gateway: work
  kRuns,
  kItemFailures,
  kDeviceTime,
  kClientBytes,
  kGraphChecks,
  kGraphCheckTime,
  kSnapshots,
  kSnapshotOldest,
  // ---- the gateway: calls
  kCalls,
  kCallTime,
  kRefused,
  // ---- the gateway: blobs
  kBlobBytes,
  kBlobStored,
  kBlobProtected,
  kBlobQuota,
  kBlobAccounts,
  kBlobAccountsNearQuota,
  kBlobDiskFree,
  kBlobDiskSize,
  // ---- the gateway: money
  kPostings,
  kPostingsRefused,
  kLedgerAudits,
  kLedgerAuditFailed,
  kChargedTime,
  kChargedUsd,
  kLedgerQueue,
  kLedgerWriteTime,
  kLedgerErrors,
  kLedgerBlocked,
  // ---- the gateway, with --metrics-by-account
  kAccountSessions,
  kAccountChargedTime,
  kAccountChargedUsd,
  kAccountStored,
  // ---- the worker
  kWorkerJoined,
  kWorkerJoinAttempts,
  kWorkerAckAge,
  kWorkerDevices,
  kWorkerDevicesOut,
  kWorkerSessions,
  kWorkerSpares,
  kWorkerMemoryLimit,
  kExecutorsStarted,
  kExecutorsEnded,
  kWorkerSteps,
  kWorkerDeviceTime,
  kKernelsCompiled,
  kKernelPlansGivenUp,
  kCompileTime,
  kObjectCache,
  kLinkedCode,
  kTuningLookups,
  kBlobCache,
  kBlobsPulled,
  kBlobsStored,
  kStoreFailures,
  kCount
};
inline constexpr size_t kMetrics = static_cast<size_t>(Metric::kCount);

// ---- label values, in the order of the table

// Of kSessions; docs/architecture/gateway.md has the states.
enum class SessionStateLabel { kQueued, kStarting, kLive, kDetached, kParked, kOrphaned, kStored };
enum class Direction { kIn, kOut };                           // as the gateway sees it
enum class Lookup { kHit, kMiss };                            // in a cache
enum class SessionEnd { kClosed, kLost };                     // of kSessionsEnded
enum class WorkerLoss { kDisconnected, kSilent };             // of kWorkersLost
// Of kWorkerOffences: what a worker did that an honest one does not (docs/runbook.md).
enum class WorkerOffence {
  kOtherSession,
  kClaim,
  kFutureEpoch,
  kUnsentItem,
  kDeviceTime,
  kReceipt,         // not signed by it, or not of its device
  kReceiptConflict  // two with one number, or one that counts less than one before
};
enum class DeviceUse { kBusy, kFree, kOutOfService };         // of kDevices
enum class GraphVerdict { kKnown, kPassed, kRefused };        // of kGraphChecks
// Of kExecutorsEnded.
enum class ExecutorEnd { kOrderly, kCrashed, kStepTooLong, kDeviceFailed, kLaunchTooLong };
enum class StoredKind { kSnapshot, kCheckpoint };             // of what a worker stores
enum class CompileResult { kOk, kFailed };                    // of kKernelsCompiled
enum class ScrapeResult { kOk, kRefused };                    // of kScrapes
// Why a lease ended.
enum class LeaseEndLabel {
  kClosed,
  kIdle,
  kAbandoned,
  kRefused,
  kExecutorLost,
  kWorkerLost,
  kNoDevice,
  kNoCredit,
  kGatewayStopped,
  kOther
};

// Why a call, a stream or a connection was refused or cut. One of these is counted (CountRefused)
// wherever the gateway says no.
enum class Refusal {
  kNoKey,          // no key was presented
  kKey,            // unknown, wrong, revoked or expired
  kKeyAddress,     // not valid from this address
  kScope,          // it lacks the scope, or its account is suspended
  kFleetSecret,    // a worker without the secret, or with a wrong one
  kExecutorToken,  // no session expects this executor
  kFirstMessage,   // too late, too large, or no Open
  kProtocol,       // another version, or a message that violates the protocol
  kNoSession,      // nothing to resume
  kSessions,       // the account has too many sessions
  kNoDevice,       // the queue is full, or the wait in it too long
  kGraph,          // the verifier rejected a graph
  kQuota,          // the account's store is full
  kRate,           // too many calls or openings in a time
  kConnections,    // too many connections of an address, or in total
  kStreams,        // too many streams or transfers of an account
  kStalledReader,  // it took nothing of what was sent
  kLedger,         // the ledger cannot be written, or refuses what the account used
  kCredit,         // a cap is reached, or the account's credit
  kStopping,       // the gateway stops
  kInvalid,        // a request with arguments that make no sense
  kNotFound,       // a request for something that is not there
  kFault,          // a bug of the gateway, or no memory: its log has exception_caught
  kOther
};

// The methods that the gateway serves.
enum class CallMethod {
  kSession,
  kValues,
  kJoin,
  kAttach,
  kKeep,
  kEnrol,
  kEnrolNode,
  kNodeLog,
  kMissing,
  kUpload,
  kCommit,
  kListChunks,
  kDownload,
  kStoreList,
  kStoreGet,
  kStoreSet,
  kStoreRemove,
  kStorePin,
  kStoreUsage,
  kCreateKey,
  kListKeys,
  kRevokeKey,
  kUsage,
  kInvoice,
  kListSessions,
  kStopSession,
  kRefusedJoin  // of a worker at the address for clients
};
// "Store.Set"; for logs and labels.
std::string_view NameOf(CallMethod method);
std::string_view NameOf(Refusal reason);
std::string_view NameOf(WorkerOffence offence);
// "NOT_FOUND"; "UNKNOWN" for a number that is no code of gRPC.
std::string_view NameOfCode(int code);
inline constexpr int kCodes = 17;  // of gRPC, OK included

// ---- the table

// As Prometheus has them.
enum class MetricType { kCounter, kGauge, kHistogram };

// Which processes show a metric: a set. `serve` shows those of a gateway and of a worker.
using Processes = unsigned;
inline constexpr Processes kInGateway = 1, kInWorker = 2, kInAll = kInGateway | kInWorker;

struct Label {
  std::string_view name;
  std::span<const std::string_view> values;  // empty: not known beforehand, at most `values_max`
  size_t values_max = 0;
  size_t size() const { return values.empty() ? values_max : values.size(); }
};

struct MetricInfo {
  Metric id;
  std::string_view name;
  MetricType type;
  Processes processes;
  std::string_view help;
  std::span<const Label> labels = {};
  // What one counted unit is in the metric's unit: 1e-6 where microseconds are counted and seconds
  // are shown.
  double unit = 1;
  std::span<const double> buckets = {};  // upper bounds, of a histogram
  // An executor counts it, and its supervisor takes over what it reports.
  bool from_executors = false;
  bool by_account = false;  // only with --metrics-by-account
};

std::span<const MetricInfo, kMetrics> MetricTable();
const MetricInfo& InfoOf(Metric metric);

// The table as the page docs/metrics.md.
std::string MetricsPage();

}  // namespace outboard::telemetry
