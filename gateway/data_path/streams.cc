#include "gateway/data_path/streams.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/server/caller.h"
#include "wire/limits.h"
#include "wire/merkle.h"
#include "wire/version.h"

namespace outboard::gateway {

// ---- Cloud.Session ------------------------------------------------------------------------------

ClientStream::ClientStream(Hub* hub, const grpc::CallbackServerContext& context)
    : hub_(hub), bearer_(Authenticator::Bearer(context)), conn_(hub->AddClient(this)) {
  Begin();
}

void ClientStream::SetRelay(std::shared_ptr<Relay> relay) {
  std::lock_guard lock(relay_mutex_);
  relay_ = std::move(relay);
}

std::shared_ptr<Relay> ClientStream::relay() {
  std::lock_guard lock(relay_mutex_);
  return relay_;
}

bool ClientStream::OnMessage(proto::ClientFrame frame) {
  if (!std::exchange(opened_, true)) {
    if (frame.items_size() == 0 || !frame.items(0).has_open()) {
      End(absl::InvalidArgumentError("a session begins with Open"));
      return true;
    }
    if (!Hold()) return false;
    // Keys are on disk.
    hub_->pool().Post([this, open = std::move(*frame.mutable_items(0)->mutable_open())] {
      auto identity = hub_->gatekeeper().Client(bearer_);
      if (identity.ok()) {
        hub_->Open(conn_, *identity, open);
      } else {
        Relay::SendEnd(*this, identity.status(), {}, 0, 0);
      }
      Unhold();
    });
    return true;
  }
  for (const proto::ClientItem& item : frame.items()) {
    if (!item.has_close()) continue;
    hub_->Close(conn_);  // what is in the frame beside it is of no use to anybody any more
    return true;
  }
  if (!Relay::IsHeavy(frame)) {
    std::shared_ptr<Relay> relay = this->relay();
    if (relay == nullptr) return true;  // before Opened there is nothing to say
    bool pause = false;
    absl::Status status = relay->FromClient(this, std::move(frame), pause);
    if (!status.ok()) hub_->Fail(conn_, status);
    return !pause;
  }
  if (!Hold()) return false;
  hub_->pool().Post([this, frame = std::move(frame)]() mutable {
    bool pause = false;
    absl::Status status;
    std::shared_ptr<Relay> relay = this->relay();
    if (relay != nullptr) status = relay->FromClient(this, std::move(frame), pause);
    if (!status.ok()) hub_->Fail(conn_, status);
    if (!pause) ResumeReading();
    Unhold();
  });
  return false;
}

void ClientStream::OnReadEnd() {
  hub_->ClientBroke(conn_);
  End(absl::OkStatus());
}
void ClientStream::OnDrained() {
  if (auto relay = this->relay(); relay != nullptr) relay->ClientDrained();
}
void ClientStream::OnGone() { hub_->RemoveClient(conn_); }

// ---- Fleet.Attach -------------------------------------------------------------------------------

ExecutorStream::ExecutorStream(Hub* hub, const grpc::CallbackServerContext& context) : hub_(hub) {
  absl::Status status = hub->gatekeeper().Worker(context);
  const Caller caller = Caller::Of(context);
  if (status.ok() && !caller.session) {
    status = absl::InvalidArgumentError(
        "Attach needs outboard-session and outboard-token, 32 hex digits each");
  }
  if (!status.ok()) {
    left_ = true;
    End(status);
    return;
  }
  session_ = *caller.session;
  auto relay = hub->Attach(session_, caller.token, this);
  if (!relay.ok()) {
    left_ = true;
    End(relay.status());
    return;
  }
  relay_ = *relay;
  Begin();
}

bool ExecutorStream::OnMessage(proto::ServerFrame frame) {
  bool pause = false;
  relay_->FromExecutor(this, std::move(frame), pause);
  return !pause;
}

void ExecutorStream::OnReadEnd() {
  Leave();
  End(absl::OkStatus());
}
void ExecutorStream::OnDrained() { relay_->ExecutorDrained(); }
void ExecutorStream::OnGone() { Leave(); }
void ExecutorStream::Leave() {
  if (left_.exchange(true)) return;
  relay_->DropExecutor(this);  // the hub may have forgotten the session, but a client's stream may
                               // still hold the relay
  hub_->Detached(session_, relay_.get());
}

// ---- Fleet.Join ---------------------------------------------------------------------------------

ControlStream::ControlStream(Hub* hub, const grpc::CallbackServerContext& context,
                             const CoreOptions& options)
    : hub_(hub), options_(options) {
  if (absl::Status status = hub->gatekeeper().Worker(context); !status.ok()) {
    End(status);
    return;
  }
  Begin();
}

bool ControlStream::Refuse(absl::Status why) {
  End(std::move(why));
  return true;
}

bool ControlStream::OnMessage(proto::WorkerEvent event) {
  if (worker_.value == 0) {
    if (!event.has_register_())
      return Refuse(absl::InvalidArgumentError("a worker begins with Register"));
    const proto::Register& reg = event.register_();
    const auto protocol = wire::AgreeOn(reg.protocol(), wire::kProtocolOfWorkers,
                                        "the worker speaks protocol", "this gateway");
    if (!protocol.ok()) return Refuse(protocol.status());
    if (reg.devices_size() == 0 || reg.devices_size() > static_cast<int>(kDevicesPerWorkerMax)) {
      return Refuse(absl::InvalidArgumentError(absl::StrCat(
          "a worker with ", reg.devices_size(), " devices; limit ", kDevicesPerWorkerMax)));
    }
    worker_ = hub_->AddWorker(this, reg);
    return true;
  }
  switch (event.kind_case()) {
    case proto::WorkerEvent::kHeartbeat: {
      hub_->OnHeartbeat(worker_, event.heartbeat());
      proto::GatewayCommand ack;
      ack.mutable_heartbeat_ack()->set_beat(event.heartbeat().beat());
      Send(std::move(ack));
      break;
    }
    case proto::WorkerEvent::kSessionEnded:
      hub_->OnSessionEnded(worker_, event.session_ended());
      break;
    case proto::WorkerEvent::kDraining: hub_->OnDraining(worker_); break;
    default: break;
  }
  return true;
}

void ControlStream::OnReadEnd() {
  if (worker_.value != 0) hub_->RemoveWorker(worker_);
  End(absl::OkStatus());
}
void ControlStream::OnGone() {
  if (worker_.value != 0) hub_->RemoveWorker(worker_);
}

}  // namespace outboard::gateway
