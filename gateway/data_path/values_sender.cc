#include "gateway/data_path/values_sender.h"

#include "gateway/base/token.h"
#include "gateway/server/authenticator.h"

namespace outboard::gateway {

ValuesSender::ValuesSender(Hub* hub, const grpc::CallbackServerContext& context,
                           const proto::ValuesRequest& request)
    : hub_(hub) {
  const auto session = SessionId::FromBytes(request.session_id());
  const auto token = TokenFromBytes(request.resume_token());
  if (!session || !token) {
    End(absl::InvalidArgumentError("session_id and resume_token have 16 bytes each"));
    return;
  }
  session_ = *session;
  Hold();  // the stream is not over before it begins
  hub_->pool().Post([this, token = *token, bearer = Authenticator::Bearer(context)] {
    auto identity = hub_->gatekeeper().Client(bearer);  // reads the disk
    const absl::Status status = identity.ok()
                                    ? hub_->OpenValues(this, identity->tenant, session_, token)
                                    : identity.status();
    if (!status.ok()) End(status);
    Unhold();
  });
}

void ValuesSender::OnDrained() { hub_->ValuesDrained(session_); }
void ValuesSender::OnGone() { hub_->CloseValues(this, session_); }

}  // namespace outboard::gateway
