#include "gateway/streams/streams.h"

#include "gateway/server/caller.h"

namespace outboard::gateway {

ClientStream::ClientStream(CoreDriver* driver, DriverHost* host, Authenticator* gatekeeper,
                           const grpc::CallbackServerContext& context)
    : port_(driver, host, gatekeeper, this, Authenticator::Bearer(context)) {
  Begin();
}

ExecutorStream::ExecutorStream(CoreDriver* driver, Authenticator* gatekeeper,
                               const grpc::CallbackServerContext& context)
    : port_(driver, this) {
  absl::Status status = gatekeeper->Worker(context);
  const Caller caller = Caller::Of(context);
  if (status.ok() && !caller.session) {
    status = absl::InvalidArgumentError(
        "Attach needs outboard-session and outboard-token, 32 hex digits each");
  }
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

ControlStream::ControlStream(CoreDriver* driver, Authenticator* gatekeeper,
                             const grpc::CallbackServerContext& context)
    : port_(driver, this) {
  if (absl::Status status = gatekeeper->Worker(context); !status.ok()) {
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

}  // namespace outboard::gateway
