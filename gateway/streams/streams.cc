#include "gateway/streams/streams.h"

#include "gateway/base/token.h"
#include "gateway/server/caller.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

namespace {

using telemetry::CallMethod;

Credentials CredentialsOf(const grpc::CallbackServerContext& context, const CallRecord& record) {
  Credentials credentials = Authenticator::CredentialsOf(context);
  credentials.request_id = record.request_id();
  return credentials;
}

void CountSent(size_t bytes) {
  telemetry::CountAs(telemetry::Metric::kClientBytes, telemetry::Direction::kOut, bytes);
}

}  // namespace

ClientStream::ClientStream(CoreDriver* driver, DriverHost* host, Authenticator* authenticator,
                           StallWatch* readers, grpc::CallbackServerContext& context)
    : record_(CallMethod::kSession, context),
      port_(driver, host, authenticator, this, CredentialsOf(context, record_)) {
  WatchWrites(readers->Watch([&context] { context.TryCancel(); }));
  Begin();
}

void ClientStream::OnQueued(size_t bytes) { CountSent(bytes); }

void ClientStream::OnFinish(const absl::Status& status) {
  if (port_.account().value != 0) record_.SetAccount(port_.account());
  record_.End(status);
}

ExecutorStream::ExecutorStream(CoreDriver* driver, Authenticator* authenticator,
                               grpc::CallbackServerContext& context)
    : record_(CallMethod::kAttach, context), port_(driver, this) {
  absl::Status status = authenticator->Worker(context);
  const Caller caller = Caller::Of(context);
  if (status.ok() && !caller.session) {
    status = absl::InvalidArgumentError(
        "Attach needs outboard-session and outboard-token, 32 hex digits each");
  }
  if (caller.session) record_.SetSession(*caller.session);
  if (status.ok()) status = port_.Attach(*caller.session, caller.token);
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

ControlStream::ControlStream(CoreDriver* driver, Authenticator* authenticator,
                             grpc::CallbackServerContext& context)
    : record_(CallMethod::kJoin, context), port_(driver, this) {
  if (absl::Status status = authenticator->Worker(context); !status.ok()) {
    End(status);
    return;
  }
  Begin();
}

bool ControlStream::OnMessage(proto::WorkerEvent event) {
  port_.OnEvent(event);
  return true;
}

void ControlStream::OnReadEnd() {
  port_.OnGone();
  End(absl::OkStatus());
}

ValuesSender::ValuesSender(CoreDriver* driver, Authenticator* authenticator, WorkQueue* pool,
                           StallWatch* readers, grpc::CallbackServerContext& context,
                           const proto::ValuesRequest& request)
    : record_(CallMethod::kValues, context), driver_(driver) {
  WatchWrites(readers->Watch([&context] { context.TryCancel(); }));
  const auto session = SessionId::FromBytes(request.session_id());
  const auto token = TokenFromBytes(request.resume_token());
  if (!session || !token) {
    End(absl::InvalidArgumentError("session_id and resume_token must have 16 bytes each"));
    return;
  }
  session_ = *session;
  record_.SetSession(*session);
  Hold();  // the stream is not over before it begins
  pool->Post([this, authenticator, token = *token,
              credentials = Authenticator::CredentialsOf(context)] {
    auto identity = authenticator->Client(credentials, KeyScope::kRun);  // reads the disk
    if (identity.ok()) record_.SetAccount(identity->tenant);
    const absl::Status status =
        identity.ok() ? driver_->OpenValues(this, *identity, session_, token) : identity.status();
    if (!status.ok()) End(status);
    Unhold();
  });
}

void ValuesSender::OnQueued(size_t bytes) { CountSent(bytes); }
void ValuesSender::OnDrained() { driver_->ValuesDrained(session_); }
void ValuesSender::OnGone() { driver_->CloseValues(this, session_); }

}  // namespace outboard::gateway
