#include "cli/connect.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/common.h"
#include "client/session/address.h"
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

absl::StatusOr<UserGateway> ConnectToGateway(const std::string& gateway) {
  const char* const host = std::getenv("CLOUD_HOST");
  const char* const key = std::getenv("CLOUD_KEY");
  UserGateway made;
  made.key = key == nullptr ? "" : key;
  const bool by_flag = !gateway.empty();
  made.target = by_flag ? gateway
                : host != nullptr && *host != '\0'
                    ? std::string(host)
                    : absl::StrCat("localhost:", session::kDefaultPort);
  OB_RETURN_IF_ERROR(session::CheckTarget(by_flag ? "--gateway" : "CLOUD_HOST", made.target));
  OB_RETURN_IF_ERROR(session::CheckKeyText("CLOUD_KEY", made.key));
  OB_ASSIGN_OR_RETURN(made.channel, ConnectWithEnvironment(made.target));
  return made;
}

}  // namespace outboard::cli
