#include "gateway/streams/streams.h"

#include "gateway/base/token.h"
#include "gateway/doors/key_door.h"
#include "gateway/server/caller.h"
#include "gateway/tls/fleet_door.h"
#include "telemetry/counters.h"
#include "wire/frame_scan.h"
#include "wire/limits.h"

namespace outboard::gateway {

namespace {

using telemetry::CallMethod;

// An Open and the frame around it.
constexpr size_t kFirstFrameBytesMax = wire::kOpenBytesMax + 1024;

Credentials CredentialsOf(const grpc::CallbackServerContext& context, const CallRecord& record) {
  Credentials credentials = Authenticator::CredentialsOf(context);
  credentials.request_id = record.request_id();
  return credentials;
}

void CountSent(size_t bytes) {
  telemetry::CountAs(telemetry::Metric::kClientBytes, telemetry::Direction::kOut, bytes);
}

// "192.0.2.7" of gRPC's "ipv4:192.0.2.7:6667", "::1" of "ipv6:%5B::1%5D:6667"; "" of others.
std::string HostOfPeer(const std::string& peer) {
  const size_t begin = peer.find(':'), end = peer.rfind(':');
  if (!peer.starts_with("ip") || begin == end) return "";
  std::string host = peer.substr(begin + 1, end - begin - 1);
  if (host.starts_with("%5B") && host.ends_with("%5D")) host = host.substr(3, host.size() - 6);
  return host;
}

}  // namespace

ClientStream::ClientStream(CoreDriver* driver, DriverHost* host, ClientAuth* auth,
                           StallWatch* readers, grpc::CallbackServerContext& context)
    : record_(CallMethod::kSession, context),
      port_(driver, host, auth, this, CredentialsOf(context, record_)) {
  WatchWrites(readers->Watch([&context] { context.TryCancel(); }));
  record_.SetPeer(auth->PeerOf(Authenticator::CredentialsOf(context)));
  port_.Begin();
}

bool ClientStream::OnMessage(grpc::ByteBuffer bytes) {
  const size_t bytes_max =
      std::exchange(is_first_, false) ? kFirstFrameBytesMax : wire::kMessageBytesMax;
  auto frame = wire::ParseFrame(bytes, bytes_max);
  if (frame.ok()) return port_.OnFrame(*std::move(frame));
  port_.OnBadFrame(frame.status());
  return false;
}

void ClientStream::OnQueued(size_t bytes) { CountSent(bytes); }

void ClientStream::OnFinish(const absl::Status& status) {
  if (port_.tenant().value != 0) record_.SetAccount(port_.tenant());
  record_.End(status);
}

ExecutorStream::ExecutorStream(CoreDriver* driver, FleetDoor* door,
                               grpc::CallbackServerContext& context, std::shared_ptr<void> held)
    : held_(std::move(held)), record_(CallMethod::kAttach, context), port_(driver, this) {
  const Caller caller = Caller::Of(context);
  if (caller.session) record_.SetSession(*caller.session);
  Hold();  // it ends when a wrong secret has cost its delay
  const auto refuse = [this](absl::Status why) {
    End(std::move(why));
    Unhold();
  };
  if (door != nullptr && !door->Admit(caller.credentials.key, caller.credentials.peer, refuse))
    return;
  Unhold();
  AttachAs(caller);
}

ExecutorStream::ExecutorStream(CoreDriver* driver, KeyDoor* door,
                               grpc::CallbackServerContext& context)
    : record_(CallMethod::kAttach, context), port_(driver, this) {
  const Caller caller = Caller::Of(context);
  if (caller.session) record_.SetSession(*caller.session);
  Hold();
  door->Admit(caller.credentials, KeyScope::kRun, SlotKind::kStream,
              [this, caller, driver](absl::StatusOr<Admitted> admitted) {
                absl::Status status = admitted.status();
                if (status.ok() && caller.session.has_value()) {
                  const auto tenant = driver->TenantOf(*caller.session, caller.token);
                  if (tenant.ok() && *tenant != admitted->identity.tenant)
                    status = absl::PermissionDeniedError("the session is another account's");
                }
                if (status.ok()) {
                  held_ = admitted->slot;
                  AttachAs(caller);
                } else {
                  End(status);
                }
                Unhold();
              });
}

void ExecutorStream::AttachAs(const Caller& caller) {
  absl::Status status;
  if (!caller.session) {
    status = absl::InvalidArgumentError(
        "Attach needs outboard-session and outboard-token, 32 hex digits each");
  }
  if (status.ok()) status = port_.Attach(*caller.session, caller.token, caller.rank);
  if (!status.ok()) {
    End(status);
    return;
  }
  Begin();
}

void ExecutorStream::OnReadEnd() {
  port_.Leave();
  End(absl::OkStatus());
}

ControlStream::ControlStream(CoreDriver* driver, FleetDoor* door,
                             grpc::CallbackServerContext& context, std::shared_ptr<void> held,
                             std::string proved_name, const std::string& node,
                             std::function<void(const absl::Status&)> tested)
    : held_(std::move(held)),
      address_(HostOfPeer(context.peer())),
      record_(CallMethod::kJoin, context),
      port_(driver, this, std::move(proved_name)) {
  if (!node.empty()) port_.SetNode(node, std::move(tested));
  Hold();
  const auto refuse = [this](absl::Status why) {
    End(std::move(why));
    Unhold();
  };
  const Credentials credentials = Authenticator::CredentialsOf(context);
  if (door != nullptr && !door->Admit(credentials.key, credentials.peer, refuse)) return;
  Unhold();
  Begin();
}

ControlStream::ControlStream(CoreDriver* driver, KeyDoor* door,
                             grpc::CallbackServerContext& context)
    : address_(HostOfPeer(context.peer())),
      record_(CallMethod::kJoin, context),
      port_(driver, this) {
  Hold();
  door->Admit(Authenticator::CredentialsOf(context), KeyScope::kRun, SlotKind::kStream,
              [this](absl::StatusOr<Admitted> admitted) {
                if (admitted.ok()) {
                  record_.SetAccount(admitted->identity.tenant);
                  held_ = admitted->slot;
                  port_.SetOwner(admitted->identity);
                  Begin();
                } else {
                  End(admitted.status());
                }
                Unhold();
              });
}

bool ControlStream::OnMessage(proto::WorkerEvent event) {
  port_.OnEvent(event);
  return true;
}

void ControlStream::OnReadEnd() {
  port_.OnGone();
  End(absl::OkStatus());
}

ValuesSender::ValuesSender(CoreDriver* driver, ClientAuth* auth, StallWatch* readers,
                           grpc::CallbackServerContext& context)
    : record_(CallMethod::kValues, context),
      driver_(driver),
      request_comes_(readers->Watch([&context] { context.TryCancel(); })) {
  WatchWrites(readers->Watch([&context] { context.TryCancel(); }));
  const Credentials credentials = Authenticator::CredentialsOf(context);
  record_.SetPeer(auth->PeerOf(credentials));
  Hold();  // the stream is not over before it begins
  auth->Admit(credentials, [this](absl::StatusOr<Admitted> admitted) {
    if (admitted.ok()) {
      admitted_ = *std::move(admitted);
      record_.SetAccount(admitted_.identity.tenant);
      request_comes_->Waits();
      Begin();
    } else {
      End(admitted.status());
    }
    Unhold();
  });
}

bool ValuesSender::OnMessage(proto::ValuesRequest request) {
  request_comes_->Goes();
  const auto session = SessionId::FromBytes(request.session_id());
  const auto token = TokenFromBytes(request.resume_token());
  if (!session || !token) {
    End(absl::InvalidArgumentError("session_id and resume_token must have 16 bytes each"));
    return false;
  }
  session_ = *session;
  record_.SetSession(*session);
  if (absl::Status status = driver_->OpenValues(this, admitted_.identity, session_, *token);
      !status.ok())
    End(status);
  return false;  // there is one request
}

void ValuesSender::OnReadEnd() {
  request_comes_->Goes();
  End(absl::InvalidArgumentError("no request came that could be read"));
}

void ValuesSender::OnQueued(size_t bytes) { CountSent(bytes); }
void ValuesSender::OnWritable() { driver_->ValuesWritable(session_); }
void ValuesSender::OnGone() { driver_->CloseValues(this, session_); }

}  // namespace outboard::gateway
