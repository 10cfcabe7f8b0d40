#include "client/session/link/values_stream.h"

#include <condition_variable>
#include <mutex>
#include <utility>

#include "client/session/call_key.h"
#include "proto/cloud.grpc.pb.h"
#include "wire/status.h"

namespace outboard::session {

class ValuesStream::Reactor final : public grpc::ClientReadReactor<proto::ServerFrame> {
 public:
  Reactor(std::shared_ptr<grpc::Channel> channel, const std::string& key,
          proto::ValuesRequest request, Listener listener)
      : channel_(std::move(channel)),
        stub_(proto::Cloud::NewStub(channel_)),
        request_(std::move(request)),
        listener_(std::move(listener)) {
    AddKey(context_, key);
    stub_->async()->Values(&context_, &request_, this);
    StartRead(&incoming_);
    StartCall();
  }

  ~Reactor() override {
    cancelled_ = true;
    context_.TryCancel();
    std::unique_lock lock(mutex_);
    done_cv_.wait(lock, [this] { return done_; });
  }

  uint64_t bytes_down() const { return bytes_down_; }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    bytes_down_ += incoming_.ByteSizeLong();
    listener_.on_frame(std::move(incoming_));
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnDone(const grpc::Status& status) override {
    if (!cancelled_) listener_.on_end(wire::FromGrpc(status));
    std::lock_guard lock(mutex_);
    done_ = true;
    done_cv_.notify_all();
  }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<proto::Cloud::Stub> stub_;
  const proto::ValuesRequest request_;
  const Listener listener_;
  grpc::ClientContext context_;
  proto::ServerFrame incoming_;
  std::atomic<uint64_t> bytes_down_{0};
  std::atomic<bool> cancelled_{false};

  std::mutex mutex_;
  std::condition_variable done_cv_;
  bool done_ = false;
};

bool MayLoseValues(const absl::Status& end) {
  return !absl::IsUnimplemented(end) && !absl::IsUnauthenticated(end) && !absl::IsNotFound(end) &&
         !absl::IsAborted(end);
}

ValuesStream::ValuesStream(std::shared_ptr<grpc::Channel> channel, const std::string& key,
                           proto::ValuesRequest request, Listener listener)
    : reactor_(std::make_unique<Reactor>(std::move(channel), key, std::move(request),
                                         std::move(listener))) {}
ValuesStream::~ValuesStream() = default;

uint64_t ValuesStream::bytes_down() const { return reactor_->bytes_down(); }

}  // namespace outboard::session
