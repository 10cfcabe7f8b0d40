#include "client/session/link/grpc_link.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/session/call_key.h"
#include "client/session/link/local_socket.h"
#include "client/session/waiting.h"
#include "proto/cloud.grpc.pb.h"
#include "wire/frame_queue.h"
#include "wire/library_logs.h"
#include "wire/limits.h"
#include "wire/status.h"
#include "wire/tls/credentials.h"
#include "wire/tls/handshake.h"

namespace outboard::session {

namespace {

constexpr int kKeepaliveMs =
    20'000;  // finds a peer that vanished without a FIN; servers allow it down to 10 s
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr std::chrono::seconds kRefusedWithin{1};  // a gateway may be about to start

// Invariants
//   LK1 At most one StartWrite is pending (gRPC aborts on a second): writing_ says so, under
//       mutex_, and only the thread that set it calls StartWrite.
//   LK2 The listener hears OnEnd once, after the last OnFrame; not at all if the owner drops the
//       link before it ends.
//   LK3 The hold keeps OnDone away while anybody may start an operation from outside: it is removed
//       once, after finished_ is set and when no StartWrite from outside is under way (starting_
//       counts them: one may be done before its thread has said so, and the next have begun).
class GrpcLink final : public Link,
                       public grpc::ClientBidiReactor<proto::ClientFrame, proto::ServerFrame> {
 public:
  GrpcLink(std::shared_ptr<grpc::Channel> channel, std::string key)
      : channel_(std::move(channel)), key_(std::move(key)), stub_(proto::Cloud::NewStub(channel_)) {
    AddKey(context_, key_);
  }

  ~GrpcLink() override {
    if (listener_ == nullptr) return;
    dropped_ = true;
    context_.TryCancel();
    DropHold();
    std::unique_lock lock(mutex_);
    done_cv_.wait(lock, [this] { return done_; });
  }

  void Start(LinkListener* listener) override {
    listener_ = listener;
    stub_->async()->Session(&context_, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  void Send(proto::ClientFrame frame) override {
    {
      std::lock_guard lock(mutex_);
      if (finished_ || broken_) return;
      queue_.Push(std::move(frame));
      if (writing_) return;
      writing_ = true;
      ++starting_;
      outgoing_ = queue_.Pop();
      bytes_up_ += outgoing_.ByteSizeLong();
    }
    StartWrite(&outgoing_);
    Started();
  }

  void Finish() override {
    {
      std::lock_guard lock(mutex_);
      if (finishing_) return;
      finishing_ = true;
      if (writing_ || broken_ || finished_) return;  // OnWriteDone closes behind the last frame
      writing_ = true;
      ++starting_;
    }
    StartWritesDone();
    Started();
  }

  uint64_t bytes_up() const override { return bytes_up_; }
  uint64_t bytes_down() const override { return bytes_down_; }

 private:
  void OnWriteDone(bool ok) override {
    bool more = false;
    {
      std::lock_guard lock(mutex_);
      if (!ok) {
        broken_ = true;
        writing_ = false;
        queue_.Clear();
        return;
      }
      more = !queue_.empty();
      if (!more && !finishing_) {
        writing_ = false;
        return;
      }
      if (more) {
        outgoing_ = queue_.Pop();
        bytes_up_ += outgoing_.ByteSizeLong();
      }
    }
    if (more) {
      StartWrite(&outgoing_);
    } else {
      StartWritesDone();
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      DropHold();
      return;
    }
    bytes_down_ += incoming_.ByteSizeLong();
    listener_->OnFrame(std::move(incoming_));
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnDone(const grpc::Status& status) override {
    if (!dropped_) listener_->OnEnd(wire::FromGrpc(status));
    std::lock_guard lock(mutex_);
    done_ = true;
    done_cv_.notify_all();
  }

  void DropHold() {
    {
      std::lock_guard lock(mutex_);
      if (finished_) return;
      finished_ = true;
      if (starting_ > 0) return;  // Started does it
    }
    RemoveHold();
  }

  void Started() {
    {
      std::lock_guard lock(mutex_);
      if (--starting_ > 0 || !finished_) return;
    }
    RemoveHold();
  }

  std::shared_ptr<grpc::Channel> channel_;
  const std::string key_;
  std::unique_ptr<proto::Cloud::Stub> stub_;
  grpc::ClientContext context_;
  LinkListener* listener_ = nullptr;
  proto::ServerFrame incoming_;
  proto::ClientFrame outgoing_;
  std::atomic<uint64_t> bytes_up_{0}, bytes_down_{0};
  std::atomic<bool> dropped_{false};

  std::mutex mutex_;
  std::condition_variable done_cv_;
  wire::FrameQueue<proto::ClientFrame> queue_;
  int starting_ = 0;
  bool writing_ = false, finishing_ = false, finished_ = false, broken_ = false, done_ = false;
};

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(const std::string& target,
                                                                const Protection& protection) {
  if (!protection.UsesTls(target)) return grpc::InsecureChannelCredentials();
  return tls::ClientCredentials(tls::HostOf(target), protection.trust, protection.identity.get());
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const Protection& protection) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(static_cast<int>(wire::kMessageBytesMax));
  args.SetMaxSendMessageSize(static_cast<int>(wire::kMessageBytesMax));
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // A gateway that was not there a moment ago must not be written off for gRPC's usual second and
  // more.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Whatever its name says, how long one attempt may take: a far gateway takes several round trips
  // to be connected.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10'000);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // CLOUD_HOST is taken literally
  wire::SilenceLibraryLogs();
  const std::string address =
      protection.UsesTls(target) ? target : LocalSocketOf(target).value_or(target);
  return grpc::CreateCustomChannel(address, ChannelCredentialsFor(address, protection), args);
}

absl::Status WaitConnected(grpc::Channel& channel, const std::string& target,
                           std::chrono::milliseconds timeout) {
  using Clock = std::chrono::system_clock;  // gRPC's deadlines
  const Clock::time_point start = Clock::now();
  Clock::time_point deadline = start + timeout;
  grpc_connectivity_state state;
  while ((state = channel.GetState(/*try_to_connect=*/true)) != GRPC_CHANNEL_READY) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE)
      deadline = std::min(deadline, start + kRefusedWithin);
    if (channel.WaitForStateChange(state, std::min(deadline, Clock::now() + kWaitCheckEvery)))
      continue;
    OB_RETURN_IF_ERROR(Waiting::Check());
    if (Clock::now() < deadline) continue;
    const auto waited = std::chrono::round<std::chrono::milliseconds>(Clock::now() - start).count();
    return absl::UnavailableError(absl::StrCat(
        "no gateway answers at ", target, " (waited ", waited,
        " ms); is it the right address, and does `outboard serve`, `up` or `gateway` run there?"));
  }
  return absl::OkStatus();
}

std::unique_ptr<Link> MakeGrpcLink(std::shared_ptr<grpc::Channel> channel, const std::string& key) {
  return std::make_unique<GrpcLink>(std::move(channel), key);
}

}  // namespace outboard::session
