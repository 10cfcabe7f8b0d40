#include "client/session/remote_session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/files/store_client.h"
#include "client/report/report_channel.h"
#include "client/session/address.h"
#include "client/session/core/outgoing_items.h"
#include "client/session/link/grpc_link.h"
#include "client/session/request.h"
#include "client/session/waiting.h"
#include "compiler/ir/dtype.h"
#include "wire/limits.h"
#include "wire/merkle.h"

namespace outboard {

absl::StatusOr<std::unique_ptr<Session>> Session::Connect(const session::SessionOptions& options) {
  // gRPC itself does not survive a fork either, whoever uses it.
  static const session::Birthplace first_connect;
  if (!first_connect.here()) return session::ForkedError();
  if (session::IsEstimated()) return NewRecordingSession(options);
  const trace::Scope scope(options.trace, "connect");
  auto session = std::make_unique<session::RemoteSession>(options);
  OB_RETURN_IF_ERROR(session->Dial());
  return session;
}

absl::StatusOr<std::unique_ptr<Session>> Session::ConnectLink(
    std::unique_ptr<session::Link> link, const session::SessionOptions& options) {
  auto session = std::make_unique<session::RemoteSession>(options);
  OB_RETURN_IF_ERROR(session->Open(std::move(link)));
  return session;
}

namespace session {
namespace {

constexpr int kForksMax = 64;  // more than an account may have by default
// Handles that a parent may still use while its forks have not begun.
constexpr uint64_t kHandlesPerParent = uint64_t{1} << 32;
constexpr size_t kReleasesPending = 4096;  // who only drops handles frees memory over there, too
constexpr std::chrono::seconds kCloseWithin{10}, kCloseLostWithin{1}, kSnapshotWithin{5};

// Dimensions of a dtype that are as long as the bytes: what comes from the cloud is checked here,
// too.
bool IsArray(const proto::Checkpoint::Entry& entry) {
  if (entry.dtype() == 0 || entry.dtype() >= kDTypeCount || entry.blob_root().size() != 32)
    return false;
  uint64_t bytes = static_cast<uint64_t>(ByteWidth(static_cast<DType>(entry.dtype())));
  for (const uint64_t dim : entry.dims()) {
    if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(bytes, dim, &bytes))
      return false;
  }
  return bytes == entry.size_bytes();
}

// Lists the arrays stored under a name, validated, so that a program can put them by their blobs.
//
// Blocks for a round trip. Errors: those of client/files/store_client.h; INVALID_ARGUMENT for a
// name that holds a plain file, DATA_LOSS for a malformed list.
absl::StatusOr<std::vector<StoredArray>> StoredArrays(const std::shared_ptr<grpc::Channel>& channel,
                                                      const std::string& key,
                                                      const std::string& name) {
  OB_ASSIGN_OR_RETURN(const proto::StoreGetReply got, files::StoreClient(channel, key).Get(name));
  if (!got.checkpoint().file_name().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is a plain file, not arrays; `outboard pull` downloads it"));
  }
  std::vector<StoredArray> arrays;
  for (const proto::Checkpoint::Entry& entry : got.checkpoint().entries()) {
    if (!IsArray(entry)) {
      return absl::DataLossError(
          absl::StrCat("entry ", arrays.size(), " of ", name, " is not an array"));
    }
    arrays.push_back({entry.name(),
                      static_cast<DType>(entry.dtype()),
                      {entry.dims().begin(), entry.dims().end()},
                      entry.size_bytes(),
                      entry.blob_root()});
  }
  return arrays;
}

}  // namespace

RemoteSession::RemoteSession(SessionOptions options)
    : options_(std::move(options)),
      trace_session_(options_.trace != nullptr ? options_.trace->AddSession() : 0) {
  if (options_.trace != nullptr) core_.WantTrace();
  core_.Spread(options_.mesh, options_.spread);
  if (options_.max_cost_micro_usd.has_value()) core_.BoundCost(*options_.max_cost_micro_usd);
  if (options_.queue_timeout.has_value())
    core_.BoundWait(static_cast<uint32_t>(std::clamp<int64_t>(
        options_.queue_timeout->count(), 0, std::numeric_limits<uint32_t>::max())));
  core_.Name(options_.name);
  core_.Attach(options_.attach);
  core_.ForkOf(options_.fork_of, options_.fork_seq);
  if (!options_.gang.empty()) core_.JoinGang(options_.gang, options_.gang_size);
  core_.WantDevices(options_.device_class, options_.device_memory_bytes);
}

RemoteSession::~RemoteSession() {
  const Waiting waiting;  // for threads that may be in a callback of the program's
  // What has a name is to be entered again.
  EndStream(/*leave=*/outlives_program()).IgnoreError();
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (reconnector_.joinable()) reconnector_.join();
  values_.reset();  // wait for the last call of the listener
  link_.reset();
}

void RemoteSession::operator delete(RemoteSession* session, std::destroying_delete_t) {
  if (!session->here()) return;
  session->~RemoteSession();
  ::operator delete(session, sizeof(RemoteSession));
}

absl::Status RemoteSession::Dial() {
  const Waiting waiting;
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Link> link, MakeFirstLink());
  return Open(std::move(link));
}

absl::Status RemoteSession::DialFork(uint64_t first_handle) {
  const Waiting waiting;
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Link> link, MakeFirstLink());
  OB_RETURN_IF_ERROR(AwaitOpened(std::move(link), Until::kPlace));
  {
    std::lock_guard lock(mutex_);
    if (!has_begun_) {
      next_handle_ = first_handle;
      shows_when_begun_ = true;
      return absl::OkStatus();
    }
  }
  ShowOpened();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Link>> RemoteSession::MakeFirstLink() {
  std::string target = options_.target;
  OB_RETURN_IF_ERROR(options_.CheckDevices());
  OB_RETURN_IF_ERROR(options_.CheckNames());
  OB_RETURN_IF_ERROR(CheckKeyText("the key", options_.key));
  if (!target.empty()) {
    OB_RETURN_IF_ERROR(CheckTarget("the gateway's address", target));
  } else {
    OB_ASSIGN_OR_RETURN(serve_, PrivateServe::Get(options_.devices.value_or(1)));
    target = serve_->target();
  }
  target_ = target;
  bulk_ = std::make_unique<Bulk>(
      target, options_.key, options_.protection,
      serve_ != nullptr ? kReconnectPrivateWithin : options_.reconnect_timeout);
  auto channel = MakeChannel(target, options_.protection);
  if (absl::Status status = WaitConnected(*channel, target, options_.connect_timeout); !status.ok())
    return absl::IsUnavailable(status) ? options_.protection.Explain(target, status) : status;
  if (!options_.protection.UsesTls(target)) teller_.TellOfPlainText(target);
  return MakeGrpcLink(std::move(channel), options_.key);
}

absl::Status RemoteSession::Open(std::unique_ptr<Link> link) {
  OB_RETURN_IF_ERROR(AwaitOpened(std::move(link)));
  ShowOpened();
  return absl::OkStatus();
}

void RemoteSession::ShowOpened() {
  {
    std::lock_guard lock(mutex_);
    if (close_called_) return;
    if (options_.progress && isatty(STDERR_FILENO) != 0)
      progress_ = std::make_unique<ConsoleProgress>([this] { return stats(); }, stderr);
    over_progress_ = progress_ != nullptr;
  }
  if (options_.debug) Tell(OpenedLine(target_, stats()));
}

// ---- the program's calls ------------------------------------------------------------------------

absl::Status RemoteSession::Put(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                                std::string_view bytes) {
  return Traced("put", [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(CheckDims(dims));
    if (bytes.size() > wire::kInlinePutBytesMax && bulk_ != nullptr) {
      const wire::BlobSource source = wire::SourceOf(bytes);
      OB_ASSIGN_OR_RETURN(const wire::Uploaded uploaded, Upload({&source, 1}));
      return SendPutBlob(handle, dtype, dims, bytes.size(), wire::AsBytes(uploaded.names[0].root));
    }
    auto copy = std::make_shared<const std::string>(bytes);
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitWindow(lock, bytes.size()));
    core_.Put(handle, static_cast<uint32_t>(dtype), dims, std::move(copy));
    Flush();
    return absl::OkStatus();
  });
}

absl::Status RemoteSession::PutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                                    uint64_t total_bytes, std::string_view root) {
  return Traced("put", [&] { return SendPutBlob(handle, dtype, dims, total_bytes, root); });
}

absl::Status RemoteSession::SendPutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                                        uint64_t total_bytes, std::string_view root) {
  OB_RETURN_IF_ERROR(CheckDims(dims));
  if (root.size() != wire::kHashBytes)
    return absl::InvalidArgumentError(absl::StrCat("a blob's root of ", root.size(), " bytes"));
  std::unique_lock lock(mutex_);
  OB_RETURN_IF_ERROR(AwaitWindow(lock, 0));
  core_.PutBlob(handle, static_cast<uint32_t>(dtype), dims, total_bytes, root);
  Flush();
  return absl::OkStatus();
}

absl::StatusOr<wire::Uploaded> RemoteSession::Upload(std::span<const wire::BlobSource> sources) {
  OB_RETURN_IF_ERROR(status());
  if (bulk_ == nullptr)
    return absl::UnimplementedError("this session's connection does not support blobs");
  ++blob_round_trips_;
  // Outside the lock: values and steps of other threads go on.
  const trace::Scope scope(options_.trace, "upload", trace_session_);
  const Waiting waiting;
  auto uploaded = bulk_->Upload(sources);
  if (absl::Status ended = status(); !uploaded.ok() && !ended.ok()) return ended;
  return uploaded;
}

absl::Status RemoteSession::AwaitWindow() {
  if (!here()) return ForkedError();
  std::unique_lock lock(mutex_);
  return AwaitWindow(lock, 0);
}

absl::StatusOr<uint64_t> RemoteSession::Run(const RunRequest& request) {
  return Traced("run", [&]() -> absl::StatusOr<uint64_t> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitWindow(lock, 0, Interruptible::kNo));
    if (measured_) return absl::CancelledError("enough steps are measured for an estimate");
    auto seq = core_.Run(request);
    if (seq.ok()) {
      run_log_.NoteRun(request, Clock::now());
      steps_by_seq_.emplace_back(*seq, steps_sent_ += request.repeat);
    }
    Flush();
    return seq;
  });
}

absl::StatusOr<uint64_t> RemoteSession::Fetch(std::span<const uint64_t> handles) {
  return Traced("fetch", [&]() -> absl::StatusOr<uint64_t> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitWindow(lock, 0));
    auto seq = core_.Fetch(handles);
    Flush();
    return seq;
  });
}

absl::StatusOr<uint64_t> RemoteSession::Save(std::string_view name,
                                             std::span<const SaveEntry> entries) {
  return Traced("save", [&]() -> absl::StatusOr<uint64_t> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitWindow(lock, 0));
    auto seq = core_.Save(name, entries);
    Flush();
    return seq;
  });
}

absl::StatusOr<Saved> RemoteSession::AwaitSaved(uint64_t seq) {
  const auto call = [&]() -> absl::StatusOr<Saved> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(Wait(lock, [&] { return core_.SavedReady(seq) || stopped(); }));
    if (!core_.SavedReady(seq)) return core_.status();
    return core_.TakeSaved(seq);
  };
  return Traced("wait for save", call, seq);
}

absl::StatusOr<std::vector<StoredArray>> RemoteSession::Stored(const std::string& name) {
  return Traced("ask the store", [&]() -> absl::StatusOr<std::vector<StoredArray>> {
    if (bulk_ == nullptr)
      return absl::UnimplementedError("this session's connection does not support the store");
    ++blob_round_trips_;
    const Waiting waiting;
    return StoredArrays(MakeChannel(target_, options_.protection), options_.key, name);
  });
}

absl::Status RemoteSession::Keep(std::span<const KeepEntry> entries) {
  const auto call = [&]() -> absl::StatusOr<uint64_t> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitWindow(lock, 0));
    auto seq = core_.Keep(entries);
    Flush();
    return seq;
  };
  return Traced("keep", call).status();
}

bool RemoteSession::keeps_any() const {
  if (!here()) return false;
  std::lock_guard lock(mutex_);
  return core_.keeps_any();
}

std::vector<KeptArray> RemoteSession::Kept() {
  if (!here()) return {};
  std::unique_lock lock(mutex_);
  AwaitBegun(lock, Interruptible::kNo).IgnoreError();  // an ended session has none
  return core_.TakeKept();
}

void RemoteSession::Release(uint64_t handle) {
  if (!here()) return;
  std::lock_guard lock(mutex_);
  core_.Advance(Now());
  core_.Release(handle);
  if (core_.pending_releases() < kReleasesPending) return;
  core_.FlushReleases();
  Flush();
}

absl::StatusOr<std::vector<std::unique_ptr<Session>>> RemoteSession::Fork(int count) {
  if (count < 1 || count > kForksMax)
    return absl::InvalidArgumentError(
        absl::StrCat("fork: ", count, " sessions; from 1 to ", kForksMax, " at a time"));
  OB_RETURN_IF_ERROR(Sync());
  SessionOptions options = options_;
  options.name.clear();
  options.attach.clear();
  options.gang.clear();
  options.gang_size = 1;
  {
    std::lock_guard lock(mutex_);
    if (target_.empty())
      return absl::UnimplementedError("this session's connection does not support others");
    options.fork_of = absl::BytesToHexString(core_.opened().session_id());
    options.fork_seq = core_.last_seq();
    options.devices = core_.devices();
  }
  OB_RETURN_IF_ERROR(options.CheckNames());
  const trace::Scope scope(options_.trace, "fork", trace_session_);
  const Waiting waiting;
  const uint64_t first_handle = next_handle_ + kHandlesPerParent;
  std::vector<std::unique_ptr<RemoteSession>> forks;
  std::vector<absl::Status> dialled(static_cast<size_t>(count));
  std::vector<std::thread> diallers;  // each waits for an executor that reads the state
  for (absl::Status& status : dialled) {
    RemoteSession* const fork =
        forks.emplace_back(std::make_unique<RemoteSession>(options)).get();
    diallers.emplace_back([fork, first_handle, &status] { status = fork->DialFork(first_handle); });
  }
  for (std::thread& dialler : diallers) dialler.join();
  for (const absl::Status& status : dialled) OB_RETURN_IF_ERROR(status);  // the others end
  // Those with a device first, then by place in the queue: a loop over them never waits for a later
  // one. Places are read once, since forks begin meanwhile.
  using Placed = std::pair<std::optional<uint64_t>, std::unique_ptr<RemoteSession>>;
  std::vector<Placed> placed;
  for (auto& fork : forks) {
    const std::optional<uint64_t> place = fork->PlaceInQueue();
    placed.emplace_back(place, std::move(fork));
  }
  std::ranges::stable_sort(placed, {}, &Placed::first);
  std::vector<std::unique_ptr<Session>> sorted;
  for (auto& [place, fork] : placed) sorted.push_back(std::move(fork));
  return sorted;
}

std::optional<uint64_t> RemoteSession::PlaceInQueue() const {
  std::lock_guard lock(mutex_);
  return has_begun_ ? std::nullopt : std::optional(core_.sessions_before());
}

absl::StatusOr<HostTensor> RemoteSession::Await(uint64_t seq, uint32_t index) {
  const auto call = [&]() -> absl::StatusOr<HostTensor> {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(Wait(lock, [&] { return core_.Ready(seq, index) || stopped(); }));
    if (!core_.Ready(seq, index)) return core_.status();
    return core_.Take(seq, index);
  };
  return Traced("wait for value", call, seq);
}

bool RemoteSession::Ready(uint64_t seq, uint32_t index) const {
  if (!here()) return true;
  std::lock_guard lock(mutex_);
  return core_.Ready(seq, index);
}

void RemoteSession::Forget(uint64_t seq, uint32_t index) {
  if (!here()) return;
  std::lock_guard lock(mutex_);
  core_.Forget(seq, index);
}

absl::Status RemoteSession::Sync() {
  return Traced("wait for all", [&]() -> absl::Status {
    std::unique_lock lock(mutex_);
    OB_RETURN_IF_ERROR(AwaitBegun(lock));
    core_.Advance(Now());
    core_.FlushReleases();
    Flush();
    const uint64_t seq = core_.last_seq();
    OB_RETURN_IF_ERROR(Wait(lock, [&] { return core_.done_seq() >= seq || ended(); }));
    if (ended()) return core_.status();
    return core_.TakeFirstFailure();
  });
}

absl::Status RemoteSession::status() const {
  if (!here()) return ForkedError();
  std::lock_guard lock(mutex_);
  return ended() ? core_.status() : absl::OkStatus();
}

Stats RemoteSession::stats() const {
  Stats stats;
  if (!here()) return stats;
  std::lock_guard lock(mutex_);
  core_.FillStats(stats);
  stats.blocking_round_trips = round_trips_ + blob_round_trips_;
  stats.window_waits = window_waits_;
  stats.frames_up = frames_up_;
  if (link_ != nullptr) {
    stats.bytes_up = bytes_up_before_ + link_->bytes_up();
    stats.bytes_down = bytes_down_before_ + link_->bytes_down();
    stats.bytes_down_apart = values_bytes_before_;
    if (values_ != nullptr) stats.bytes_down_apart += values_->bytes_down();
    stats.bytes_down += stats.bytes_down_apart;
  }
  if (bulk_ != nullptr) stats.bytes_up += bulk_->bytes_up();
  if (opened_at_ != Clock::time_point()) {
    const auto end = closed_at_ != Clock::time_point() ? closed_at_ : Clock::now();
    stats.seconds_open = std::chrono::duration<double>(end - opened_at_).count();
  }
  return stats;
}

absl::Status RemoteSession::Detach() {
  if (!status().ok()) return EndStream(/*leave=*/true);  // its calls have said why
  const absl::Status status = Sync();
  OB_RETURN_IF_ERROR(EndStream(/*leave=*/true));
  return status;
}

absl::Status RemoteSession::EndStream(bool leave) {
  if (!here()) return absl::OkStatus();
  const Waiting waiting;
  std::unique_lock lock(mutex_);
  TellMeasured();  // of a short program
  if (!has_begun_ && link_ != nullptr && !ended() && !close_called_) {  // a fork without a device
    closed_ = close_called_ = true;
    GiveUpOpening(lock, absl::OkStatus());
    link_->Finish();
    changed_.notify_all();
    return absl::OkStatus();
  }
  if (opened_at_ == Clock::time_point() || std::exchange(close_called_, true))
    return absl::OkStatus();
  // A connection that is just being made again is worth a moment: it stops the meter.
  changed_.wait_for(lock, kCloseLostWithin, [&] { return !IsLost() || ended(); });
  closed_ = true;
  if (!ended() && !IsLost()) {
    leave ? core_.Leave() : core_.Close();
    Flush();
    // Without an answer the gateway's grace time ends the session; the program must not hang on
    // its way out.
    changed_.wait_for(lock, kCloseWithin, [this] { return ended(); });
  }
  StopClock();
  core_.End(absl::OkStatus());
  if (link_ != nullptr) link_->Finish();
  changed_.notify_all();
  Stats last;
  core_.FillStats(last);
  std::unique_ptr<ConsoleProgress> progress = std::move(progress_);
  lock.unlock();
  internal::ReportEndedSession(last.cost_micro_usd);
  {
    std::lock_guard heads_lock(heads_mutex_);
    if (auto line = heads_seen_.End()) Tell(*line);
  }
  if (options_.trace != nullptr) options_.trace->WriteIfChanged();
  progress.reset();
  over_progress_ = false;
  if (options_.debug) Tell(EndedLine(stats()));
  // A private worker has no classes and no price.
  if (options_.debug && !target_.empty() && serve_ == nullptr && stats().runs > 0)
    Tell(EstimateAtEnd());
  return absl::OkStatus();
}

absl::Status RemoteSession::Sleep(std::unique_lock<std::mutex>& lock, Clock::time_point deadline,
                                  const std::function<bool()>& condition,
                                  Interruptible interruptible) {
  absl::Status status;
  const Clock::time_point begin = Clock::now();
  lock.unlock();
  {
    const Waiting waiting;
    lock.lock();
    if (sleepers_++ == 0) silence_.Begin(Clock::now(), BytesDown());
    while (
        status.ok() && Clock::now() < deadline &&
        !changed_.wait_until(lock, std::min(deadline, Clock::now() + kWaitCheckEvery), condition)) {
      TellOfSilence(lock);
      if (interruptible == Interruptible::kNo) continue;
      lock.unlock();
      status = Waiting::Check();
      lock.lock();
    }
    TellOfSilence(lock);  // if that is over
    --sleepers_;
    lock.unlock();
  }
  lock.lock();
  slept_ += Clock::now() - begin;
  return status;
}

void RemoteSession::TellOfSilence(std::unique_lock<std::mutex>& lock) {
  // A private worker is this machine's; a lost connection has lines of its own.
  if (serve_ != nullptr || target_.empty() || IsLost() || ended()) return;
  using News = SilenceWatch::News;
  const News news = silence_.Check(target_, options_.protection, Clock::now(), BytesDown());
  if (news == News::kNone) return;
  lock.unlock();
  Tell(news == News::kSilent ? SilentLine(target_, SilenceWatch::kSilentAfter)
                             : HeardLine(target_));
  lock.lock();
}

uint64_t RemoteSession::BytesDown() const {
  return bytes_down_before_ + values_bytes_before_ + (link_ != nullptr ? link_->bytes_down() : 0) +
         (values_ != nullptr ? values_->bytes_down() : 0);
}

absl::Status RemoteSession::Wait(std::unique_lock<std::mutex>& lock,
                                 const std::function<bool()>& condition) {
  if (condition()) return absl::OkStatus();
  const trace::Scope scope(options_.trace, "blocked", trace_session_);
  ++round_trips_;
  return Sleep(lock, Clock::time_point::max(), condition);
}

absl::Status RemoteSession::AwaitWindow(std::unique_lock<std::mutex>& lock, uint64_t bytes,
                                        Interruptible interruptible) {
  OB_RETURN_IF_ERROR(AwaitBegun(lock, interruptible));
  const auto may = [&] { return core_.HasWindow(bytes) || ended(); };
  const auto snapshot = [&] { return core_.AwaitsSnapshot(bytes); };
  if (!may()) {
    const trace::Scope scope(options_.trace, "window full", trace_session_);
    ++window_waits_;
    do {
      OB_RETURN_IF_ERROR(Sleep(
          lock, Clock::time_point::max(), [&] { return may() || snapshot(); }, interruptible));
      if (may()) continue;
      OB_RETURN_IF_ERROR(Sleep(
          lock, Clock::now() + kSnapshotWithin, [&] { return ended() || !snapshot(); },
          interruptible));
      if (snapshot() && !ended()) core_.GiveUpRecovery();
    } while (!may());
  }
  core_.Advance(Now());
  return ended() ? core_.status() : absl::OkStatus();
}

void RemoteSession::StopClock() {
  if (closed_at_ == Clock::time_point()) closed_at_ = Clock::now();
  if (bulk_ != nullptr) bulk_->Cancel();
}

}  // namespace session

}  // namespace outboard
