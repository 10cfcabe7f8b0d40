#include "cli/connect.h"

#include "base/check.h"
#include "cli/common.h"
#include "client/session/link/grpc_link.h"
#include "client/session/protection.h"

namespace outboard::cli {

absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectWithEnvironment(const std::string& target) {
  OB_ASSIGN_OR_RETURN(const session::Protection protection, session::Protection::FromEnvironment());
  auto channel = session::MakeChannel(target, protection);
  if (absl::Status status = session::WaitConnected(*channel, target, kConnectsWithin); !status.ok())
    return protection.Explain(target, status);
  return channel;
}

}  // namespace outboard::cli
