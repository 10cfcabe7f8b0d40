// Invariants
//   V1  A session has an executor for each of its devices, all or none of them, each with one
//       connection to the gateway (executor_host.h); SessionEnded reports how the first of them
//       ended, and the others end with it.
//   V2  Executors are started by the thread of Run only (they end with it), and reaped by their
//       session's thread.
//   V3  When Join breaks, or its heartbeats are not acknowledged for worker_timeout_ms, executors
//       keep their state and Register names them. Those that Welcome does not name end, as do all
//       after kOrphanMost without a gateway. Meanwhile the session may get another executor: the
//       attach token tells the two apart, and only the session's own is accepted.
//
//   session:  Assign --start--> running --Join breaks--> orphaned
//             orphaned --Welcome names it, Attach--> running
//             running --the executor ends | ReleaseSession--> ended
//             orphaned --Welcome does not name it | kOrphanMost--> ended
#include "worker/supervisor/supervisor.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/growing_pause.h"
#include "proto/fleet.grpc.pb.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "telemetry/samples.h"
#include "wire/limits.h"
#include "wire/version.h"
#include "worker/devices/device_rates.h"
#include "worker/devices/worker_devices.h"
#include "worker/executor/executor_main.h"
#include "worker/groups/describe_groups.h"
#include "worker/groups/link_probes.h"
#include "worker/groups/session_executors.h"
#include "worker/kernels/account_kernels.h"
#include "worker/kernels/search_service.h"
#include "worker/process/orphan.h"
#include "worker/sandbox/granted_parts.h"
#include "worker/sandbox/session_share.h"
#include "worker/supervisor/blob_cache.h"
#include "worker/supervisor/core_sets.h"
#include "worker/supervisor/driver_trial.h"
#include "worker/supervisor/executor_host.h"
#include "worker/supervisor/held_sessions.h"
#include "worker/supervisor/join/identity.h"
#include "worker/supervisor/join/join_call.h"
#include "worker/supervisor/kernels_of_accounts.h"
#include "worker/supervisor/spare_executor.h"
#include "worker/supervisor/stored_file.h"
#include "worker/tuning/idle_searcher.h"

namespace outboard::worker {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// The thread of Run waits so long for a GPU's last executor, before it refuses a session: far below
// the gateway's worker_timeout_ms.
constexpr std::chrono::seconds kSpareEndsWithin{1};
constexpr double kRejoinFirstS = 0.1, kRejoinMostS = 5;  // with jitter: all lose it at once

}  // namespace

class Supervisor::Impl {
 public:
  explicit Impl(SupervisorOptions options)
      : options_(std::move(options)),
        executors_(ExecutorOptionsFromEnvironment()),
        devices_({.kind = executors_.device,
                  .reference = executors_.reference,
                  .count_max = options_.devices,
                  .memory_bytes_max = options_.memory_bytes_max,
                  .memory_bytes_reserved = options_.memory_bytes_reserved}),
        accounts_(KernelsOf(options_)),
        leases_(options_.receipt_key.value_or(signing::SigningKey::Make())) {
    options_.devices = devices_.count();
    if (options_.executor.empty()) options_.executor = {"/proc/self/exe", "executor"};
    if (options_.name.empty()) options_.name = HostName();
    if (options_.identity.empty()) options_.identity = NewIdentity();
    if (options_.bulk.empty() && options_.enrolment == nullptr)
      options_.bulk = {options_.gateway, options_.gateway};
  }

  absl::Status Run() {
    absl::StatusOr<std::unique_ptr<BlobCache>> cache = BlobCache::OpenDefault();
    if (!cache.ok()) return cache.status();
    blob_cache_ = *std::move(cache);
    TryDriverBehindWalls(options_.executor, executors_, devices_.listed_count(), stopping_);
    SayWhatIsShared();
    if (MeasuresGpusAtStart())
      devices_.MeasureAtStart(options_.measure, CoresOfEach(), kMeasureAtStartWithin);
    // Executors that have a GPU search on it themselves, while their sessions are quiet.
    if (!options_.search.empty() && executors_.device != runtime::kCuda)
      searcher_ = std::make_unique<IdleSearcher>(IdleSearcherOptions{
          .command = options_.search,
          .cores = CoresOf(0),
          .memory_bytes_max = static_cast<uint64_t>(devices_.host_memory_bytes()),
          .prepare =
              [this](bool new_round) { return PrepareSearch(accounts_, new_round, CoresOf(0)); }});
    if (options_.enrolment == nullptr) fleet_ = proto::Fleet::NewStub(options_.gateway);
    GrowingPause pause(kRejoinFirstS, kRejoinMostS, SystemRandom);
    while (!stopping_) {
      if (!IsNode(options_.enrolment.get()) || devices_.tested()) StartSpare();  // a test ends it
      const Clock::time_point start = Clock::now();
      absl::Status status = Connect();
      if (status.ok()) status = JoinOnce();
      sessions_.Reap();
      const Clock::time_point ack{Clock::duration(last_ack_.load())};
      if (Clock::now() - ack > kOrphanMost) sessions_.EndAll();
      // A gateway with another CA knows no certificate of the one before.
      if (absl::IsUnauthenticated(status) && options_.enrolment != nullptr &&
          options_.enrolment->Refused()) {
        LogNotJoined(status);
        continue;
      }
      if (absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status) ||
          absl::IsFailedPrecondition(status)) {
        sessions_.EndAll();
        spare_.Stop();
        return status;
      }
      if (!status.ok() && !stopping_) LogNotJoined(status);
      if (Clock::now() - start > std::chrono::duration<double>(kRejoinMostS)) pause.Reset();
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, pause.NextWait(), [&] { return stopping_.load(); });
      if (stays_away_) wake_.wait(lock, [&] { return stopping_.load(); });
    }
    sessions_.EndAll();
    spare_.Stop();
    return absl::OkStatus();
  }

  void Drain(Milliseconds limit) {
    if (!welcome_) return;
    draining_ = true;
    proto::WorkerEvent event;
    event.mutable_draining();
    Tell(event);
    std::unique_lock lock(mutex_);
    const auto are_left = [this] { return welcome_ && sessions_.running_count() > 0; };
    const Clock::time_point until = Clock::now() + limit;
    while (are_left() && Clock::now() < until) wake_.wait_for(lock, Milliseconds(50));
    telemetry::LogInfo("worker_drained", {{"worker", options_.name}, {"is_empty", !are_left()}});
  }

  void ReleaseReserved() {
    devices_.ReleaseReserved();
    std::lock_guard lock(mutex_);
    if (join_ != nullptr) join_->Cancel();  // Run joins again; one that begins says so already
  }

  void StayAway() { stays_away_ = true; }

  void Stop() {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    if (join_ != nullptr) join_->Cancel();
    wake_.notify_all();
  }

 private:
  // To whoever runs this worker, a line each: what the sandbox lacks, and what is shared.
  void SayWhatIsShared() {
    const std::string missing = WhatIsMissing();
    if (!missing.empty() && !options_.is_single_account) {
      one_account_ = !options_.shared_anyway;
      telemetry::LogWarning(
          "sandbox_incomplete",
          {{"missing", missing},
           {"effect", one_account_ ? "this worker serves one account at a time (--shared-anyway: "
                                     "any number)"
                                   : "accounts on this worker are not walled off from each other "
                                     "(--shared-anyway)"}});
    }
    if (!options_.one_user) cores_of_devices_ = CoresOfDevices(options_.devices);
  }

  // That a session on this device uses; empty: all.
  std::vector<int> CoresOf(uint32_t device) const {
    return device < cores_of_devices_.size() ? cores_of_devices_[device] : std::vector<int>();
  }

  std::function<std::vector<int>(uint32_t)> CoresOfEach() const {
    return [this](uint32_t device) { return CoresOf(device); };
  }

  // Takes connections with the certificate of the time; sessions are attached by them, too.
  absl::Status Connect() {
    if (options_.enrolment == nullptr) return absl::OkStatus();
    auto channels = options_.enrolment->Channels();
    if (!channels.ok()) return channels.status();
    if (channels->control == options_.gateway) return absl::OkStatus();
    options_.gateway = channels->control;
    options_.bulk = channels->bulk;
    fleet_ = proto::Fleet::NewStub(options_.gateway);
    sessions_.ForEach([&](SessionExecutors& each) { each.UseBulk(options_.bulk); });
    return absl::OkStatus();
  }

  absl::Status JoinOnce() {
    JoinCall call(options_.fleet_secret, options_.welcome_within);
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return absl::OkStatus();
      join_ = &call;
      joined_ = true;
    }
    telemetry::Count(telemetry::Metric::kWorkerJoinAttempts);
    call.Begin(*fleet_);
    draining_ = false;  // said by the gateway before, which may have been another
    {
      // An executor may end at any moment, and tells so on told_: Register comes first.
      std::lock_guard lock(write_mutex_);
      call.Write(RegisterEvent());
      told_ = &call;
    }
    std::thread heart;
    proto::GatewayCommand command;
    bool has_welcome = false;
    while (call.Read(&command)) {
      for (const proto::WorkerEvent& event : leases_.On(command)) Tell(event);
      sessions_.Reap();  // before what follows: an ended session may be assigned again
      if (command.has_welcome()) {
        last_ack_ = Clock::now().time_since_epoch().count();
        local_socket_ = IsNode(options_.enrolment.get()) ? "" : command.welcome().local_socket();
        KeepSessions({command.welcome().sessions().begin(), command.welcome().sessions().end()});
        welcome_ = has_welcome = true;
        not_joined_.clear();
        if (options_.enrolment != nullptr) options_.enrolment->Accepted();
        telemetry::LogInfo("worker_welcome", {{"worker", options_.name},
                                              {"sessions", command.welcome().sessions_size()}});
        if (!std::exchange(ever_joined_, true)) options_.on_joined();
        if (!heart.joinable())
          heart = std::thread([this, welcome = command.welcome(), &call] { Beat(welcome, call); });
      } else if (command.has_heartbeat_ack()) {
        last_ack_ = Clock::now().time_since_epoch().count();
      } else if (command.has_assign()) {
        OnAssign(command.assign());
      } else if (command.has_release()) {
        sessions_.Release(command.release().session_id());
      } else if (command.has_drain()) {
        draining_ = true;
        if (command.drain().restart()) options_.on_restart();
      } else if (command.has_measure_link()) {
        probes_.Begin(command.measure_link());
      } else if (command.has_measure()) {
        spare_.Stop();  // it would have the device beside
        proto::WorkerEvent event;
        *event.mutable_measured() =
            devices_.Measure(command.measure(), options_.measure, CoresOfEach());
        Tell(event);
        StartSpare();
      }
      sessions_.Reap();
      // A GPU may have become free, and a node may have joined without a test.
      if (has_welcome && (devices_.are_gpus() || command.has_welcome())) StartSpare();
    }
    welcome_ = false;
    {
      std::lock_guard lock(mutex_);
      joined_ = false;
      join_ = nullptr;
      wake_.notify_all();
    }
    if (heart.joinable()) heart.join();
    {
      std::lock_guard lock(write_mutex_);
      told_ = nullptr;
    }
    return call.Finish();
  }

  // Once for each reason: it is tried every few seconds.
  void LogNotJoined(const absl::Status& status) {
    const absl::string_view message = status.message();
    if (std::exchange(not_joined_, std::string(message)) == message) return;
    telemetry::LogWarning(
        "not_joined",
        {{"worker", options_.name}, {"joined_before", ever_joined_}, {"message", message}});
  }

  // For /metrics; on the thread of a scrape.
  void Sample(telemetry::Samples& samples) {
    using telemetry::Metric;
    const Clock::time_point ack{Clock::duration(last_ack_.load())};
    samples.Set(Metric::kWorkerJoined, welcome_ ? 1 : 0);
    if (last_ack_ != 0)
      samples.Largest(Metric::kWorkerAckAge,
                      std::chrono::duration<double>(Clock::now() - ack).count());
    samples.Set(Metric::kWorkerDevices, options_.devices);
    samples.Set(Metric::kWorkerDevicesOut, static_cast<double>(devices_.count_out()));
    samples.Set(Metric::kWorkerSpares, has_spare_ ? 1 : 0);
    samples.Largest(Metric::kWorkerMemoryLimit, static_cast<double>(devices_.MemoryOn(0)));
    samples.Set(Metric::kWorkerSessions, static_cast<double>(sessions_.count()));
  }

  // On the thread of Run. Of a session that has ended SessionEnded may have found no stream: it is
  // not named, and so ends at the gateway too.
  proto::WorkerEvent RegisterEvent() {
    proto::WorkerEvent event;
    proto::Register& entry = *event.mutable_register_();
    entry.set_name(options_.name);
    entry.set_identity(options_.identity);
    wire::SetRange(wire::kProtocolOfWorkers, *entry.mutable_protocol());
    wire::SetRange(wire::kGraphSchemas, *entry.mutable_graph_schema());
    entry.set_one_account(one_account_);
    DescribeGroups(options_.devices, options_.links.get(), entry);
    leases_.AddTo(entry);
    devices_.Describe(CoresOfEach(), entry);
    sessions_.Describe(entry);
    return event;
  }

  void Tell(const proto::WorkerEvent& event) {
    std::lock_guard lock(write_mutex_);
    if (told_ != nullptr) told_->Write(event);
  }

  void Beat(const proto::Welcome& welcome, JoinCall& call) {
    const Milliseconds period(std::max<uint32_t>(welcome.heartbeat_ms(), 10));
    const Milliseconds timeout(std::max<uint32_t>(welcome.worker_timeout_ms(), 100));
    uint64_t beat = 0;
    std::unique_lock lock(mutex_);
    while (joined_ && !stopping_) {
      proto::WorkerEvent event;
      event.mutable_heartbeat()->set_beat(++beat);
      lock.unlock();
      sessions_.Describe(*event.mutable_heartbeat());
      leases_.AddTo(*event.mutable_heartbeat());
      Tell(event);
      lock.lock();
      const Clock::time_point ack{Clock::duration(last_ack_.load())};
      if (Clock::now() - ack > timeout) {  // V3: Run joins again
        call.Cancel();
        return;
      }
      if (options_.enrolment != nullptr && options_.enrolment->IsDue() &&
          options_.enrolment->CanRenew()) {
        call.Cancel();  // Run renews it, and joins again by a new connection
        return;
      }
      wake_.wait_for(lock, period, [&] { return !joined_ || stopping_.load(); });
    }
  }

  // For the device that the gateway will most likely name: the first that is free. A GPU has one
  // process, so that there is none while all are taken.
  void StartSpare() {
    if (stopping_) return;
    const double seconds_max = devices_.are_gpus() ? executors_.device_seconds_max
                                                   : std::numeric_limits<double>::infinity();
    while (const auto end = spare_.EndIfFailed(seconds_max))
      if (devices_.are_gpus()) OnDeviceFailure(end->device, end->failure, 0, end->words);
    if (spare_.running()) return;
    if (const std::optional<uint32_t> free = FirstFreeDevice()) StartSpareOn(*free);
  }

  void StartSpareOn(uint32_t device) {
    const absl::Status started =
        spare_.Start(options_.executor, device, CoresOf(device), devices_.EnvironmentOf(device),
                     accounts_.tunes());
    has_spare_ = started.ok();
    why_no_spare_ = started;
    if (!started.ok())
      telemetry::LogError("executor_not_started", {{"message", started.ToString()}});
  }

  // By a session, one that begins, or an executor that is being ended.
  bool IsTaken(uint32_t device) const {
    return sessions_.AnyUses(device) || spare_.IsEndingOn(device) ||
           (assigning_ != nullptr && std::ranges::count(assigning_->devices(), device) > 0);
  }
  // nullopt: none, of GPUs.
  std::optional<uint32_t> FirstFreeDevice() {
    const auto devices = static_cast<uint32_t>(options_.devices);
    for (uint32_t device = 0; device < devices; ++device)
      if (!IsTaken(device) && !devices_.IsOut(device)) return device;
    if (devices_.are_gpus()) return std::nullopt;
    return 0;  // one of them will be free when the spare is needed; it is moved there
  }

  // What the session has paid for, and no more.
  absl::Status PrepareSpare(const proto::Assign& assign, uint32_t rank, uint64_t memory_bytes_max) {
    // What a session of a GPU holds is there; what its process has here is the driver's, copies in
    // flight, and the file of its snapshots.
    const auto here = static_cast<uint64_t>(devices_.host_memory_bytes());
    OB_RETURN_IF_ERROR(LimitSessionMemory(
        spare_.pid(), devices_.are_gpus() ? std::max(memory_bytes_max, here) : memory_bytes_max));
    if (devices_.are_gpus()) return absl::OkStatus();  // it is where it was started
    const uint32_t device = assign.devices_size() > 0 ? assign.devices(rank) : spare_.device();
    if (device == spare_.device() || CoresOf(device).empty()) return absl::OkStatus();
    return spare_.MoveTo(device, CoresOf(device));
  }

  void OnAssign(const proto::Assign& assign) {
    if (sessions_.Has(assign.session_id())) return;
    auto executors = std::make_unique<SessionExecutors>(
        assign, [this, assign](uint32_t rank, const absl::Status& status) {
          sessions_.MarkEnded(assign.session_id());  // before the gateway hears of it
          TellEnded(assign, rank, status);
        });
    assigning_ = &assign;
    uint32_t rank = 0;
    absl::Status started;
    for (; started.ok() && rank < SessionExecutors::RanksOf(assign); ++rank)
      started = StartExecutor(assign, rank, *executors);
    if (started.ok()) started = executors->Introduce(options_.links.get());
    assigning_ = nullptr;
    if (!started.ok()) {  // all or none
      executors->Silence();
      executors.reset();
      StartSpare();
      return TellEnded(assign, assign.group().first_rank() + rank - 1, started);
    }
    executors->Attach(*fleet_, local_socket_);
    sessions_.Add(assign.session_id(), std::move(executors));
    StartSpare();
  }

  // Errors: UNAVAILABLE
  absl::Status StartExecutor(const proto::Assign& assign, uint32_t rank,
                             SessionExecutors& executors) {
    OB_RETURN_IF_ERROR(TakeGpu(assign, rank));
    StartSpare();  // if the last one could not be started, or has ended
    if (!spare_.running() || draining_)
      return absl::UnavailableError(
          draining_ ? "the worker is draining"
                    : absl::StrCat("an executor cannot be started",
                                   why_no_spare_.ok() ? "" : ": ", why_no_spare_.message()));
    auto memory = static_cast<uint64_t>(devices_.MemoryOn(spare_.device()));
    if (assign.memory_bytes_max() > 0) memory = std::min(memory, assign.memory_bytes_max());
    if (const absl::Status prepared = PrepareSpare(assign, rank, memory); !prepared.ok()) {
      spare_.Stop();  // the next one that is needed is another
      return prepared;
    }
    ExecutorHostOptions session;
    session.assign = assign;
    session.memory_bytes_max = memory;
    session.fleet_secret = options_.fleet_secret;
    session.blob_cache = blob_cache_.get();
    session.bulk = options_.bulk;
    session.searcher = searcher_.get();
    session.leases = &leases_;
    session.kernels = spare_.TakeKernels();
    session.stored_file = StoredFile::MakeOrNone(blob_cache_->folder());
    session.output = spare_.TakeOutput();
    if (devices_.are_gpus())
      session.on_device_failure = [this, device = spare_.device(),
                                   account = options_.is_single_account ? 0 : assign.account()](
                                      DeviceFailure failure, const std::string& words) {
        OnDeviceFailure(device, failure, account, words);
      };
    session.files = accounts_.FilesOf(assign.account(), assign.shares_tuning());
    telemetry::Count(telemetry::Metric::kExecutorsStarted);
    telemetry::LogInfo("executor_assigned",
                       {{"session", absl::BytesToHexString(assign.session_id())},
                        {"rank", assign.group().first_rank() + rank},
                        {"pid", spare_.pid()}, {"memory_bytes_max", memory}});
    executors.Add(std::move(session), spare_.TakeProcess());
    has_spare_ = false;
    return absl::OkStatus();
  }

  // Has the spare on the GPU that the gateway names for this rank.
  // Errors: UNAVAILABLE  it is out of service, or another session's process has it
  absl::Status TakeGpu(const proto::Assign& assign, uint32_t rank) {
    if (!devices_.are_gpus()) return absl::OkStatus();
    const uint32_t device = assign.devices_size() > 0 ? assign.devices(rank) : 0;
    if (device >= static_cast<uint32_t>(options_.devices))
      return absl::UnavailableError(absl::StrCat("this worker has no GPU ", device));
    if (devices_.IsOut(device))
      return absl::UnavailableError(absl::StrCat("GPU ", device, " is out of service"));
    if (sessions_.AnyUses(device))
      return absl::UnavailableError(absl::StrCat("GPU ", device, " is another session's still"));
    if (!spare_.AwaitEnd(device, kSpareEndsWithin))
      return absl::UnavailableError(
          absl::StrCat("GPU ", device, " has an executor that is being ended"));
    if (spare_.running() && spare_.device() == device) return absl::OkStatus();
    if (!stopping_) StartSpareOn(device);
    return absl::OkStatus();
  }

  // Any thread.
  void OnDeviceFailure(uint32_t device, DeviceFailure failure, uint64_t account,
                       const std::string& words) {
    std::optional<proto::DeviceOut> out = devices_.Failed(device, failure, account, words);
    if (!out.has_value()) return;
    proto::WorkerEvent event;
    *event.mutable_device_out() = *std::move(out);
    Tell(event);
  }

  // V3
  void KeepSessions(const std::set<std::string>& kept) {
    sessions_.ReleaseAllBut(kept);
    sessions_.ForEach([&](SessionExecutors& each) { each.Attach(*fleet_, local_socket_); });
  }

  void TellEnded(const proto::Assign& assign, uint32_t rank, const absl::Status& status) {
    proto::WorkerEvent event;
    *event.mutable_session_ended() = SessionEndedOf(assign, rank, status);
    Tell(event);
  }

  SupervisorOptions options_;
  const ExecutorMainOptions executors_;
  WorkerDevices devices_;
  std::unique_ptr<proto::Fleet::Stub> fleet_;
  std::atomic<bool> stopping_{false}, stays_away_{false}, draining_{false};
  std::atomic<Clock::rep> last_ack_{0};
  bool one_account_ = false;
  std::vector<std::vector<int>> cores_of_devices_;  // empty: each uses all
  absl::Status why_no_spare_;  // OK: there is one, or all GPUs are taken
  std::atomic<bool> welcome_{false}, has_spare_{false};  // for Sample
  SpareExecutor spare_;
  const proto::Assign* assigning_ = nullptr;  // the one that begins; of Run's thread
  AccountKernels accounts_;
  LeaseCounter leases_;
  std::string local_socket_;                // the gateway's, as it said
  std::unique_ptr<IdleSearcher> searcher_;  // before the sessions that tell it

  std::mutex mutex_;
  std::condition_variable wake_;
  bool joined_ = false, ever_joined_ = false;  // the second: of Run's thread
  std::string not_joined_;    // why it cannot join, as it was logged; of Run's thread
  JoinCall* join_ = nullptr;
  std::unique_ptr<BlobCache> blob_cache_;
  HeldSessions sessions_;  // the thread of Run is its owner

  std::mutex write_mutex_;  // of told_, which takes one write at a time
  JoinCall* told_ = nullptr;  // once Register is written
  LinkProbes probes_{options_.links.get(), [this](const auto& event) { Tell(event); }};
  const telemetry::Sampled sampled_{[this](telemetry::Samples& samples) { Sample(samples); }};
};

Supervisor::Supervisor(SupervisorOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
Supervisor::~Supervisor() = default;
absl::Status Supervisor::Run() { return impl_->Run(); }
void Supervisor::Drain(std::chrono::milliseconds limit) { impl_->Drain(limit); }
void Supervisor::ReleaseReserved() { impl_->ReleaseReserved(); }
void Supervisor::StayAway() { impl_->StayAway(); }
void Supervisor::Stop() { impl_->Stop(); }

}  // namespace outboard::worker
