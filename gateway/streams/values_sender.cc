#include "gateway/streams/values_sender.h"

#include "gateway/base/token.h"

namespace outboard::gateway {

ValuesSender::ValuesSender(CoreDriver* driver, Authenticator* gatekeeper, WorkQueue* pool,
                           const grpc::CallbackServerContext& context,
                           const proto::ValuesRequest& request)
    : driver_(driver) {
  const auto session = SessionId::FromBytes(request.session_id());
  const auto token = TokenFromBytes(request.resume_token());
  if (!session || !token) {
    End(absl::InvalidArgumentError("session_id and resume_token have 16 bytes each"));
    return;
  }
  session_ = *session;
  Hold();  // the stream is not over before it begins
  pool->Post([this, gatekeeper, token = *token, bearer = Authenticator::Bearer(context)] {
    auto identity = gatekeeper->Client(bearer);  // reads the disk
    const absl::Status status = identity.ok()
                                    ? driver_->OpenValues(this, identity->tenant, session_, token)
                                    : identity.status();
    if (!status.ok()) End(status);
    Unhold();
  });
}

void ValuesSender::OnDrained() { driver_->ValuesDrained(session_); }
void ValuesSender::OnGone() { driver_->CloseValues(this, session_); }

}  // namespace outboard::gateway
