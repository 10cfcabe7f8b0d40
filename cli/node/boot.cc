#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/common.h"
#include "cli/node/boot_server.h"
#include "cli/node/commands.h"
#include "client/session/address.h"
#include "gateway/base/clock.h"
#include "gateway/nodes/node_registry.h"
#include "gateway/server/gateway.h"
#include "telemetry/log.h"

namespace outboard::cli {

namespace {

// Gives a claim to the machine for which one was offered, once. Without a gateway's folder here
// nobody is given one.
class Claims {
 public:
  absl::Status Open(const std::string& folder) {
    const std::string path = gateway::AccountsPath(folder);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return absl::OkStatus();
    OB_ASSIGN_OR_RETURN(registry_, gateway::NodeRegistry::Open(path));
    return absl::OkStatus();
  }
  std::string For(const std::string& serial) {
    if (registry_ == nullptr) return "";
    const auto now = gateway::WallNow();
    const auto offered = registry_->TakeOffer(serial, now);
    if (!offered.ok()) return Failed(serial, offered.status());
    if (!*offered) return "";
    const auto claim = registry_->MakeClaim(serial, now);
    if (!claim.ok()) return Failed(serial, claim.status());
    return std::string(claim->Reveal());
  }

 private:
  static std::string Failed(const std::string& serial, const absl::Status& status) {
    telemetry::LogWarning("claim_not_made", {{"node", serial}, {"message", status.message()}});
    return "";
  }

  std::unique_ptr<gateway::NodeRegistry> registry_;
};

absl::Status Boot(const BootFlags& flags) {
  BootServerOptions options;
  options.listen = flags.listen;
  OB_ASSIGN_OR_RETURN(options.image, ReadBootImage(flags.image));
  for (const std::string& path : flags.files) {
    OB_ASSIGN_OR_RETURN(BootFile file, ReadBootFile(path));
    std::fprintf(stderr, "outboard: %s is sha256/%s\n", path.c_str(), file.digest.c_str());
    options.files.push_back(std::move(file));
  }
  if (!flags.gateway.empty()) OB_RETURN_IF_ERROR(session::CheckTarget("--gateway", flags.gateway));
  OB_RETURN_IF_ERROR(CheckWords("--gateway", flags.gateway));
  OB_RETURN_IF_ERROR(CheckWords("--append", flags.append));
  options.script = {.gateway = flags.gateway, .append = flags.append};
  Claims claims;
  OB_RETURN_IF_ERROR(claims.Open(DataFolderOr(flags.data)));
  options.claim_for = [&claims](const std::string& serial) { return claims.For(serial); };
  const std::string image = options.image.digest;
  OB_ASSIGN_OR_RETURN(const auto server, BootServer::Start(std::move(options)));
  std::printf("image %s\n", image.c_str());
  OB_RETURN_IF_ERROR(
      TellReady(flags.ready, absl::StrCat("http://", server->address(), "/boot.ipxe")));
  return AwaitEnd(flags.life_fd);
}

}  // namespace

int RunBoot(const BootFlags& flags) { return Report(Boot(flags)); }

}  // namespace outboard::cli
