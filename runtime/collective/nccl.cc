// Invariants
//   1. comm_ is used under mutex_ alone, and null once it was aborted.
//   2. control_ is aborted before comm_ is: who sees an error of NCCL's that comes of an abort
//      finds its cause there.
#include "runtime/collective/nccl.h"

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::collective {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPause{50};
constexpr int kPollsWithoutPause = 1000;

class NcclCollective final : public Collective {
 public:
  explicit NcclCollective(NcclOptions options)
      : Collective(options.control->member()),
        api_(options.api),
        control_(std::move(options.control)),
        stream_(std::move(options.stream)),
        patience_(options.patience) {}

  ~NcclCollective() override { AbortComm(); }

  absl::Status Connect() {
    const absl::Status connected = TryToConnect();
    if (connected.ok()) return connected;
    Abort(connected);
    return status();
  }

  absl::StatusOr<TransferId> Start(std::span<const BlockTransfer> bucket) override {
    for (const BlockTransfer& transfer : bucket)
      OB_RETURN_IF_ERROR(CheckTransfer(member(), transfer));
    OB_RETURN_IF_ERROR(status());
    const absl::Status queued = Queue(bucket);
    if (queued.ok()) {
      const absl::StatusOr<uint64_t> mark = stream_->Mark();
      if (mark.ok()) {
        const TransferId id{++last_};
        started_[id] = {*mark, Clock::now()};
        return id;
      }
      Abort(mark.status());
    } else {
      Abort(queued);
    }
    return status();
  }

  absl::Status Wait(TransferId id) override {
    const auto found = started_.find(id);
    OB_CHECK(found != started_.end());
    const Started transfer = found->second;
    started_.erase(found);
    const absl::Status done = Poll(transfer.begun, "a transfer", [&]() -> absl::StatusOr<bool> {
      OB_ASSIGN_OR_RETURN(const bool is_done, stream_->IsDone(transfer.mark));
      OB_RETURN_IF_ERROR(AsyncStatus().status());  // after it: what an abort has ended looks done
      return is_done;
    });
    if (done.ok()) return done;
    Abort(done);
    return status();
  }

  void Abort(const absl::Status& cause) override {
    control_->Abort(cause);  // the first cause is kept
    AbortComm();
  }

  absl::Status status() const override { return control_->status(); }
  bool takes_device_memory() const override { return true; }
  Collective& of_host() override { return *control_; }

 private:
  struct Started {
    uint64_t mark = 0;
    Clock::time_point begun;
  };

  void AbortComm() {
    std::lock_guard lock(mutex_);
    if (comm_ != nullptr) api_.ncclCommAbort(std::exchange(comm_, nullptr));
  }

  // Whether what was asked of NCCL is under way. False: not yet.
  absl::StatusOr<bool> AsyncStatus() {
    std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return absl::UnavailableError("the communicator was aborted");
    ncclResult_t error = ncclSuccess;
    OB_RETURN_IF_ERROR(
        NcclStatus(api_, api_.ncclCommGetAsyncError(comm_, &error), "ncclCommGetAsyncError"));
    if (error == ncclInProgress) return false;
    OB_RETURN_IF_ERROR(NcclStatus(api_, error, "a transfer"));
    return true;
  }

  // Until `is_done`, or a partner has gone, or it has taken too long.
  template <typename IsDone>
  absl::Status Poll(Clock::time_point begun, const char* what, const IsDone& is_done) {
    for (int polls = 0;; ++polls) {
      const absl::StatusOr<bool> done = is_done();
      if (done.ok() && *done) return absl::OkStatus();
      OB_RETURN_IF_ERROR(status());
      OB_RETURN_IF_ERROR(done.status());
      if (Clock::now() - begun > patience_)
        return absl::DeadlineExceededError(
            absl::StrCat("NCCL: ", what, " has taken more than ", patience_.count(), " ms"));
      if (polls >= kPollsWithoutPause) std::this_thread::sleep_for(kPause);
    }
  }

  absl::Status TryToConnect() {
    // The id of rank 0, or why there is none.
    struct Word {
      int result = ncclSuccess;
      ncclUniqueId id = {};
    };
    Word mine, word;
    if (member().rank == 0) mine.result = api_.ncclGetUniqueId(&mine.id);
    const BlockTransfer transfer{TransferPattern::kBroadcast,
                                 member().ranks(),
                                 1,
                                 0,
                                 {reinterpret_cast<const char*>(&mine), sizeof mine},
                                 {reinterpret_cast<char*>(&word), sizeof word}};
    OB_ASSIGN_OR_RETURN(const TransferId told, control_->Start({&transfer, 1}));
    OB_RETURN_IF_ERROR(control_->Wait(told));
    OB_RETURN_IF_ERROR(
        NcclStatus(api_, static_cast<ncclResult_t>(word.result), "ncclGetUniqueId on rank 0"));
    {
      std::lock_guard lock(mutex_);
      ncclConfig_t config;
      const ncclResult_t begun =
          api_.ncclCommInitRankConfig(&comm_, static_cast<int>(member().ranks()), word.id,
                                      static_cast<int>(member().rank), &config);
      if (begun != ncclInProgress)
        OB_RETURN_IF_ERROR(NcclStatus(api_, begun, "ncclCommInitRankConfig"));
    }
    return Poll(Clock::now(), "to connect", [&] { return AsyncStatus(); });
  }

  absl::Status Queue(std::span<const BlockTransfer> bucket) {
    {
      std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return absl::UnavailableError("the communicator was aborted");
      OB_RETURN_IF_ERROR(NcclStatus(api_, api_.ncclGroupStart(), "ncclGroupStart"));
      absl::Status queued;
      for (const BlockTransfer& transfer : bucket) queued.Update(QueueOne(transfer));
      const ncclResult_t ended = api_.ncclGroupEnd();  // also where one was refused
      OB_RETURN_IF_ERROR(queued);
      if (ended != ncclInProgress) OB_RETURN_IF_ERROR(NcclStatus(api_, ended, "ncclGroupEnd"));
    }
    return Poll(Clock::now(), "to begin a transfer", [&] { return AsyncStatus(); });
  }

  // Under mutex_.
  absl::Status QueueOne(const BlockTransfer& transfer) {
    const int64_t place = member().rank / transfer.stride % transfer.count;
    const auto bytes = static_cast<size_t>(transfer.block_bytes());
    if (bytes == 0) return absl::OkStatus();
    absl::Status queued;
    const auto check = [&](ncclResult_t result, const char* what) {
      if (result != ncclInProgress) queued.Update(NcclStatus(api_, result, what));
    };
    for (int64_t other = 0; other < transfer.count; ++other) {
      const int peer = static_cast<int>(member().rank + (other - place) * transfer.stride);
      const bool broadcast = transfer.pattern == TransferPattern::kBroadcast;
      const size_t from =
          transfer.pattern == TransferPattern::kAllToAll ? static_cast<size_t>(other) * bytes : 0;
      const size_t to = broadcast ? 0 : static_cast<size_t>(other) * bytes;
      if (!broadcast || place == transfer.root)
        check(api_.ncclSend(transfer.send.data() + from, bytes, ncclInt8, peer, comm_,
                            stream_->handle()),
              "ncclSend");
      if (!broadcast || other == transfer.root)
        check(api_.ncclRecv(transfer.receive.data() + to, bytes, ncclInt8, peer, comm_,
                            stream_->handle()),
              "ncclRecv");
    }
    return queued;
  }

  const NcclApi api_;
  const std::unique_ptr<Collective> control_;
  const std::shared_ptr<NcclStream> stream_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
  int64_t last_ = 0;
  std::map<TransferId, Started> started_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> MakeNccl(NcclOptions options) {
  auto made = std::make_unique<NcclCollective>(std::move(options));
  OB_RETURN_IF_ERROR(made->Connect());
  return std::unique_ptr<Collective>(std::move(made));
}

}  // namespace outboard::collective
