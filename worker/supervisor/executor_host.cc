// Invariants
//   EH1 on_end is called once, when the executor has been reaped; nothing about the session is
//       reported after it.
//   EH2 All frames that the executor wrote before its end reach the gateway.
//   EH3 Messages on the control socket are not interleaved: one writer at a time. Nobody who has a
//       message waits for the executor to read it (command_queue.h).
#include "worker/supervisor/executor_host.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "wire/limits.h"
#include "worker/executor/executor_main.h"
#include "worker/executor/launch_watchdog.h"
#include "worker/executor/step_watchdog.h"
#include "worker/process/message_io.h"
#include "worker/process/message_limits.h"
#include "worker/supervisor/command_queue.h"
#include "worker/supervisor/grpc_attach.h"
#include "worker/supervisor/session_blobs.h"

namespace outboard::worker {
namespace {

// A manifest that is stored, as the gateway limits it.
constexpr uint64_t kManifestBytesMax = uint64_t{64} << 20;
constexpr int kReleasedWaitMs = 300;
constexpr int kEndWaitMs = 2000;  // for an executor whose socket has closed to end by itself

// Connected to the abstract unix socket `name`; -1 where nobody of this machine has it, or too many
// wait for it to accept: this is the thread that joins, which waits for nobody.
int ConnectLocally(const std::string& name) {
  sockaddr_un address{};
  if (name.empty() || name.size() + 1 > sizeof address.sun_path) return -1;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
      fcntl(fd, F_SETFL, 0) == 0)  // everybody behind it blocks
    return fd;
  close(fd);
  return -1;
}

// What an executor of several gets before it begins: a socket to each other, and an eventfd.
size_t GroupSocketsOf(const proto::Assign& assign) {
  return assign.mesh_size() > 0 ? wire::kSessionDevicesMax : 0;
}

// proc_pid_statm(5): pages, of which the third number is those that files back.
uint64_t MemoryOf(int pid) {
  std::ifstream statm(absl::StrCat("/proc/", pid, "/statm"));
  uint64_t size = 0, resident = 0, of_files = 0;
  if (!(statm >> size >> resident >> of_files) || of_files > resident) return 0;
  return (resident - of_files) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void AddCounts(const proto::Counts& counts) {
  std::vector<telemetry::CellCount> cells;
  for (const proto::Counts::Cell& cell : counts.cells())
    cells.push_back({cell.metric(), cell.cell(), cell.more()});
  telemetry::AddCounts(cells);
}

constexpr char kOneMoreTryPayload[] = "outboard/one-more-try";

// The payload is the item's seq.
absl::Status WithOneMoreTry(absl::Status status, uint64_t seq) {
  status.SetPayload(kOneMoreTryPayload, absl::Cord(absl::string_view(absl::StrCat(seq))));
  return status;
}

// What the end says of the executor's device; nullopt: nothing. `told`: what the executor said of
// it, if anything.
std::optional<DeviceFailure> FailureOf(const ChildEnd& end,
                                       const std::optional<proto::DeviceTrouble>& told) {
  if (end.IsNever()) return DeviceFailure::kNotLetGo;
  if (end.IsExit(kExitLaunchTooLong)) return DeviceFailure::kLaunchTooLong;
  if (end.IsExit(kExitNoDevice)) return DeviceFailure::kNotThere;
  if (!end.IsExit(kExitDeviceLost)) return std::nullopt;
  return told && told->kind() == proto::DeviceTrouble::MEMORY_FAULT ? DeviceFailure::kMemoryFault
                                                                    : DeviceFailure::kLost;
}

absl::Status WhyItEnded(const ChildEnd& end, const std::optional<DeviceFailure>& failure,
                        const std::string& words, uint64_t seq) {
  if (failure == DeviceFailure::kMemoryFault)
    return absl::UnavailableError(absl::StrCat("executor ended: its device failed: ", words));
  if (failure == DeviceFailure::kLost) return WithOneMoreTry(absl::InternalError(words), seq);
  if (failure == DeviceFailure::kLaunchTooLong)
    return WithOneMoreTry(absl::DeadlineExceededError(words), seq);
  if (!end.IsExit(kExitStepTooLong))
    return absl::UnavailableError(absl::StrCat("executor ", end.ToString()));
  return absl::DeadlineExceededError(
      absl::StrCat("a step ran longer than ", ExecutorOptionsFromEnvironment().step_seconds_max,
                   " s and was stopped; the session's values are gone"));
}

}  // namespace

class ExecutorHost::Impl {
 public:
  Impl(ExecutorHostOptions options, ChildProcess executor)
      : options_(std::move(options)),
        executor_(std::move(executor)),
        commands_({.fd = executor_.fd(),
                   .commands_max = kBlobWantsMax + 2 + GroupSocketsOf(options_.assign),
                   .works = [this] { return works_.load(); },
                   .on_stuck = [this](const absl::Status& why) { Misbehaved(why); }}),
        blobs_({.assign = options_.assign,
                .rank = options_.rank,
                .fleet_secret = options_.fleet_secret,
                .channels = options_.bulk,
                .cache = options_.blob_cache,
                .owner = options_.files.owner,
                .file = options_.stored_file.get(),
                .store_bytes_max = options_.memory_bytes_max + kManifestBytesMax,
                .answer = [this](const proto::ToExecutor& command, int passed) {
                  commands_.Push(command, passed);
                }}) {
    if (options_.output != nullptr) options_.output->BelongsTo(SessionText());
    if (options_.kernels != nullptr) options_.kernels->Serve(options_.files);
    if (options_.stored_file != nullptr) {
      proto::ToExecutor command;
      command.mutable_store_file();
      commands_.PushLent(command, options_.stored_file->fd());
    }
    control_ = std::thread([this] { ReadEvents(); });
  }

  ~Impl() {
    LetGo();
    if (is_let_go_) {
      std::unique_lock lock(mutex_);
      silent_.wait_for(lock, std::chrono::milliseconds(kReleasedWaitMs),
                       [this] { return is_silent_; });
    }
    End();
    control_.join();
  }

  // Its side alone is closed.
  void LetGo() {
    if (ending_.exchange(true)) return;
    is_let_go_ = true;
    blobs_.Cancel();
    shutdown(executor_.fd(), SHUT_WR);
  }

  void Attach(proto::Fleet::Stub& fleet, const std::string& local_socket) {
    SetGrpc(nullptr);
    int passed = ConnectLocally(local_socket);
    int ours = -1;
    if (passed >= 0) {
      proto::LocalAttach hello;
      hello.set_session_id(options_.assign.session_id());
      hello.set_attach_token(options_.assign.attach_token());
      hello.set_fleet_secret(options_.fleet_secret);
      hello.set_rank(options_.rank);
      WriteMessage(passed, hello).IgnoreError();  // a gateway that has gone is seen by the executor
    } else {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return Misbehaved(
            absl::UnavailableError(absl::StrCat("no socket pair: ", strerror(errno))));
      ours = pair[0];
      passed = pair[1];
    }
    proto::ToExecutor command;
    command.mutable_begin()->set_session_id(options_.assign.session_id());
    command.mutable_begin()->set_memory_bytes_max(options_.memory_bytes_max);
    *command.mutable_begin()->mutable_refused() = options_.assign.refused();
    command.mutable_begin()->set_rank(options_.rank);
    *command.mutable_begin()->mutable_mesh() = options_.assign.mesh();
    command.mutable_begin()->set_group_epoch(options_.assign.placement());
    commands_.Push(command, passed);
    if (ours >= 0)
      SetGrpc(std::make_shared<GrpcAttach>(fleet, options_.assign, options_.rank,
                                           options_.fleet_secret, ours));
  }

  void PassGroupSocket(uint32_t rank, int fd) {
    proto::ToExecutor command;
    command.mutable_group_socket()->set_rank(rank);
    commands_.Push(command, fd);
  }

  void UseBulk(std::vector<std::shared_ptr<grpc::Channel>> bulk) {
    blobs_.UseChannels(std::move(bulk));
  }

  void End() {
    ending_ = true;
    blobs_.Cancel();
    shutdown(executor_.fd(), SHUT_RDWR);
    if (const auto grpc = Grpc()) grpc->Cancel();
  }

  const ExecutorHostOptions& options() const { return options_; }
  uint64_t memory_bytes() const { return MemoryOf(pid_); }

 private:
  std::shared_ptr<GrpcAttach> Grpc() {
    std::lock_guard lock(mutex_);
    return grpc_;
  }
  void SetGrpc(std::shared_ptr<GrpcAttach> next) {
    std::lock_guard lock(mutex_);
    grpc_.swap(next);
  }

  std::string SessionText() const {
    const std::string session = absl::BytesToHexString(options_.assign.session_id());
    return options_.assign.mesh_size() > 0 ? absl::StrCat(session, "/", options_.rank) : session;
  }
  // By which the searcher tells those who work apart.
  std::string SearchName() const {
    return absl::StrCat(options_.assign.session_id(), "/", options_.rank);
  }

  // No executor of ours does that. Any thread.
  void Misbehaved(const absl::Status& why) {
    telemetry::LogWarning("executor_misbehaved",
                          {{"session", SessionText()}, {"message", why.message()}});
    shutdown(executor_.fd(), SHUT_RDWR);  // ReadEvents ends it
  }

  // Of this worker.
  uint32_t Device() const {
    const auto here = static_cast<int>(options_.rank - options_.assign.group().first_rank());
    return here < options_.assign.devices_size() ? options_.assign.devices(here) : 0;
  }

  void NoteActivity(bool works) {
    works_ = works;
    if (options_.leases != nullptr)
      options_.leases->Works(options_.assign.session_id(), Device(), works);
  }

  void ReadEvents() {
    uint64_t spells = 0;  // of work, as the searcher counts items
    proto::FromExecutor event;
    while (ReadMessage(executor_.fd(), &event,
                       {.bytes_max = kFromExecutorBytesMax, .fields_max = kFromExecutorFieldsMax})
               .ok()) {
      absl::Status status;
      if (event.has_want_blob()) status = blobs_.Want(event.want_blob());
      if (event.has_store()) status = blobs_.Store(event.store());
      if (!status.ok()) {
        Misbehaved(status);
        break;
      }
      if (event.has_counts()) AddCounts(event.counts());
      if (event.has_trouble()) trouble_ = event.trouble();
      if (event.has_activity()) NoteActivity(event.activity().working());
      if (!event.has_activity() || options_.searcher == nullptr) continue;
      if (event.activity().working()) {
        options_.searcher->Sent(SearchName(), ++spells);
      } else {
        options_.searcher->Applied(SearchName(), spells);
      }
    }
    {
      std::lock_guard lock(mutex_);
      is_silent_ = true;
    }
    silent_.notify_all();
    // One that was told to end may be within a long kernel, and whoever told it waits for us; one
    // whose client has closed still tells the store what its kernels cost.
    const ChildEnd end = executor_.Wait(ending_ ? kReleasedWaitMs : kEndWaitMs);
    if (options_.leases != nullptr) options_.leases->Gone(options_.assign.session_id(), Device());
    if (options_.output != nullptr) options_.output->Finish();
    options_.kernels.reset();                      // its compile processes end
    if (const auto grpc = Grpc()) grpc->Finish();  // EH2
    if (options_.searcher != nullptr) options_.searcher->Ended(SearchName());
    const std::optional<DeviceFailure> failure = FailureOf(end, trouble_);
    std::string words = trouble_ ? trouble_->message().substr(0, kTroubleTextBytesMax)
                                 : absl::StrCat("the executor ", end.ToString());
    for (char& c : words)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';  // a line of a log
    // Also of one that was told to end: the next session must not meet its process.
    if (failure && options_.on_device_failure) options_.on_device_failure(*failure, words);
    const bool orderly = ending_ || end.IsExit(0);
    const uint64_t seq = trouble_ ? trouble_->seq() : 0;
    const absl::Status why = orderly ? absl::OkStatus() : WhyItEnded(end, failure, words, seq);
    NoteEnd(why, end.ToString(), failure);
    options_.on_end(why);
  }

  void NoteEnd(const absl::Status& why, const std::string& how,
               const std::optional<DeviceFailure>& failure) const {
    using telemetry::ExecutorEnd;
    const std::string session = SessionText();
    ExecutorEnd end = ExecutorEnd::kCrashed;
    if (why.ok())
      end = ExecutorEnd::kOrderly;
    else if (failure.has_value())
      end = failure == DeviceFailure::kLaunchTooLong ? ExecutorEnd::kLaunchTooLong
                                                     : ExecutorEnd::kDeviceFailed;
    else if (absl::IsDeadlineExceeded(why))
      end = ExecutorEnd::kStepTooLong;
    telemetry::CountAs(telemetry::Metric::kExecutorsEnded, end);
    if (why.ok())
      telemetry::LogInfo("executor_ended", {{"session", session}, {"how", how}});
    else
      telemetry::LogWarning("executor_failed", {{"session", session}, {"how", how}});
  }

  ExecutorHostOptions options_;
  ChildProcess executor_;
  const int pid_ = executor_.pid();  // also after its end
  std::atomic<bool> ending_{false};
  bool is_let_go_ = false;          // of the owner's thread
  std::atomic<bool> works_{false};  // as it says
  std::optional<proto::DeviceTrouble> trouble_;  // as it says; of the control thread
  CommandQueue commands_;
  SessionBlobs blobs_;
  std::mutex mutex_;  // of the next three
  std::shared_ptr<GrpcAttach> grpc_;
  std::condition_variable silent_;
  bool is_silent_ = false;  // nothing more comes from the executor
  std::thread control_;
};

std::optional<uint64_t> OneMoreTryOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kOneMoreTryPayload);
  uint64_t seq = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &seq)) return std::nullopt;
  return seq;
}

ExecutorHost::ExecutorHost(ExecutorHostOptions options, ChildProcess executor)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(executor))) {}
ExecutorHost::~ExecutorHost() = default;
void ExecutorHost::Attach(proto::Fleet::Stub& fleet, const std::string& local_socket) {
  impl_->Attach(fleet, local_socket);
}
void ExecutorHost::PassGroupSocket(uint32_t rank, int fd) { impl_->PassGroupSocket(rank, fd); }
void ExecutorHost::UseBulk(std::vector<std::shared_ptr<grpc::Channel>> bulk) {
  impl_->UseBulk(std::move(bulk));
}
void ExecutorHost::LetGo() { impl_->LetGo(); }
void ExecutorHost::End() { impl_->End(); }
const proto::Assign& ExecutorHost::assign() const { return impl_->options().assign; }
uint64_t ExecutorHost::memory_bytes() const { return impl_->memory_bytes(); }

}  // namespace outboard::worker
