#include "worker/supervisor/join/join_call.h"

#include <condition_variable>
#include <thread>

#include "absl/strings/str_cat.h"
#include "wire/status.h"

namespace outboard::worker {

// Cancels the call where a wait lasts too long. A thread of its own: gRPC's reads have no deadline.
class JoinCall::Watch {
 public:
  Watch(std::chrono::milliseconds within, grpc::ClientContext& context)
      : within_(within), context_(context), thread_([this] { Run(); }) {}
  ~Watch() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      wake_.notify_all();
    }
    thread_.join();
  }
  void Waits(bool waits) {
    std::lock_guard lock(mutex_);
    waits_ = waits;
    until_ = Clock::now() + within_;
    wake_.notify_all();
  }
  bool was_late() {
    std::lock_guard lock(mutex_);
    return was_late_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  void Run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (!waits_) {
        wake_.wait(lock);
      } else if (Clock::now() < until_) {
        wake_.wait_until(lock, Clock::time_point(until_));
      } else {
        was_late_ = true;
        waits_ = false;
        context_.TryCancel();
      }
    }
  }

  const std::chrono::milliseconds within_;
  grpc::ClientContext& context_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false, waits_ = false, was_late_ = false;
  Clock::time_point until_;
  std::thread thread_;  // last: it uses the others
};

JoinCall::JoinCall(const std::string& fleet_secret, std::chrono::milliseconds answers_within)
    : answers_within_(answers_within) {
  context_.AddMetadata("authorization", absl::StrCat("Bearer ", fleet_secret));
}

JoinCall::~JoinCall() {
  watch_.reset();
  context_.TryCancel();
}

void JoinCall::Begin(proto::Fleet::Stub& fleet) {
  stream_ = fleet.Join(&context_);
  watch_ = std::make_unique<Watch>(answers_within_, context_);
}

void JoinCall::Write(const proto::WorkerEvent& event) { stream_->Write(event); }

bool JoinCall::Read(proto::GatewayCommand* command) {
  if (watch_ == nullptr) return stream_->Read(command);
  watch_->Waits(true);
  const bool has_read = stream_->Read(command);
  watch_->Waits(false);
  was_late_ = watch_->was_late();
  if (has_read && command->has_welcome()) watch_.reset();
  return has_read;
}

absl::Status JoinCall::Finish() {
  const absl::Status status = wire::FromGrpc(stream_->Finish());
  if (!was_late_ || status.ok()) return status;
  return absl::UnavailableError(
      absl::StrCat("the gateway takes the call, and does not answer it within ",
                   std::chrono::duration<double>(answers_within_).count(), " s"));
}

}  // namespace outboard::worker
