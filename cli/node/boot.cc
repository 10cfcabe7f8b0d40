#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/host_port.h"
#include "cli/common.h"
#include "cli/node/boot_server.h"
#include "cli/node/commands.h"
#include "cli/node/image_store.h"
#include "cli/node/served_files.h"
#include "client/session/address.h"
#include "gateway/base/clock.h"
#include "gateway/nodes/image_rows.h"
#include "gateway/nodes/node_registry.h"
#include "gateway/server/gateway.h"
#include "gateway/tls/authority_files.h"
#include "telemetry/log.h"
#include "wire/tls/authority.h"
#include "wire/tls/private_file.h"

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

// What each machine boots, as `outboard image use` and a rollout say. Without a gateway's folder
// here nothing is said of any.
class Images {
 public:
  explicit Images(const std::string& folder) : folder_(folder), served_(folder) {}
  absl::Status Open() {
    const std::string path = gateway::AccountsPath(folder_);
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return absl::OkStatus();
    OB_ASSIGN_OR_RETURN(rows_, gateway::ImageRows::Open(path));
    // A machine may be fetching one whose script an earlier process sent.
    OB_ASSIGN_OR_RETURN(const std::vector<gateway::ImageRow> all, rows_->List());
    for (const gateway::ImageRow& row : all)
      if (const BootImage* const image = served_.Find(row.digest)) {
        files_.push_back(image->kernel);
        files_.push_back(image->initramfs);
      }
    return absl::OkStatus();
  }
  // Of those that could be read when this began.
  const std::vector<BootFile>& files() const { return files_; }
  std::optional<BootChoice> For(const std::string& serial, bool boots) {
    if (rows_ == nullptr) return std::nullopt;
    const auto chosen = rows_->ChooseBoot(serial, boots);
    if (!chosen.ok()) {
      const std::string message(chosen.status().message());
      telemetry::LogWarning("image_not_chosen", {{"node", serial}, {"message", message}});
      return std::nullopt;
    }
    if (!chosen->has_value()) return std::nullopt;
    const BootImage* const image = served_.Find((*chosen)->image);
    if (image == nullptr) return std::nullopt;
    return BootChoice{.image = *image,
                      .joins_within_s = (*chosen)->on_trial ? (*chosen)->within_ms / 1000 : 0};
  }

 private:
  const std::string folder_;
  std::unique_ptr<gateway::ImageRows> rows_;
  ServedImages served_;
  std::vector<BootFile> files_;
};

// A certificate of the gateway's CA for this machine's names, renewed when it is due; or the one
// that is given, read again every hour.
absl::StatusOr<std::function<absl::StatusOr<HttpsIdentity>()>> IdentityOf(const BootFlags& flags,
                                                                          const std::string& data) {
  if (flags.tls_certificate_file.empty() != flags.tls_key_file.empty())
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together");
  if (!flags.tls_certificate_file.empty())
    return [flags]() -> absl::StatusOr<HttpsIdentity> {
      OB_ASSIGN_OR_RETURN(const std::string chain,
                          tls::ReadFile(flags.tls_certificate_file, /*is_secret=*/false));
      OB_ASSIGN_OR_RETURN(const std::string key,
                          tls::ReadFile(flags.tls_key_file, /*is_secret=*/true));
      OB_RETURN_IF_ERROR(
          tls::KeyAndChain::Parse(flags.tls_certificate_file, key, chain).status());
      return HttpsIdentity{.pem = chain + key, .renew_at = absl::Now() + absl::Hours(1)};
    };
  const auto authority = gateway::ReadAuthority(data);
  if (absl::IsNotFound(authority.status()))
    return absl::InvalidArgumentError(
        absl::StrCat("--https-listen: no gateway's CA is in ", data,
                     "; `outboard gateway --tls` makes one, or give --tls-cert and --tls-key"));
  if (!authority.ok()) return authority.status();
  return [authority = *authority, flags]() -> absl::StatusOr<HttpsIdentity> {
    std::vector<std::string> more = flags.tls_names;
    if (const auto place = SplitHostPort(flags.https_listen);
        place.has_value() && place->host != "0.0.0.0" && place->host != "::")
      more.push_back(place->host);
    OB_ASSIGN_OR_RETURN(const tls::KeyAndChain issued,
                        authority.Issue({.common_name = "outboard boot",
                                         .names = gateway::NamesOfThisMachine(more)}));
    const tls::Certificate& own = issued.chain.front();
    return HttpsIdentity{.pem = issued.ToPem(),
                         .renew_at = tls::RenewAt(own.not_before(), own.not_after())};
  };
}

// Only that it is a program: the firmware that starts it checks its signature.
absl::StatusOr<BootFile> ReadEfiFile(const std::string& path) {
  OB_ASSIGN_OR_RETURN(const BootFile file, ReadBootFile(path));
  char head[2] = {};
  std::ifstream(path, std::ios::binary).read(head, sizeof head);
  if (head[0] != 'M' || head[1] != 'Z')
    return absl::InvalidArgumentError(absl::StrCat(
        "--efi: ", path, " is no program for UEFI; deploy/image/sign --certificate makes it"));
  return file;
}

absl::Status Boot(const BootFlags& flags) {
  BootServerOptions options;
  options.listen = flags.listen;
  const std::string data = DataFolderOr(flags.data);
  Images images(data);
  OB_RETURN_IF_ERROR(images.Open());
  if (!flags.image.empty()) {
    OB_ASSIGN_OR_RETURN(options.image, ReadServedImage(data, flags.image));
  } else if (images.files().empty() && flags.efi.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no image was added to ", data,
                     " (`outboard image add`), and there is neither --image nor --efi"));
  }
  if (!flags.efi.empty()) {
    OB_ASSIGN_OR_RETURN(options.efi, ReadEfiFile(flags.efi));
  }
  options.files = images.files();
  ServedDrivers drivers(data);  // those that are added while this runs, too
  options.find = [&drivers](const std::string& digest) { return drivers.Find(digest); };
  options.choose = [&images](const std::string& serial, bool boots) {
    return images.For(serial, boots);
  };
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
  OB_RETURN_IF_ERROR(claims.Open(data));
  options.claim_for = [&claims](const std::string& serial) { return claims.For(serial); };
  if (!flags.https_listen.empty()) {
    options.https_listen = flags.https_listen;
    OB_ASSIGN_OR_RETURN(options.https_identity, IdentityOf(flags, data));
  }
  const std::string image = options.image ? options.image->digest : "as `outboard image use` says";
  const bool has_efi = options.efi.has_value();
  OB_ASSIGN_OR_RETURN(const auto server, BootServer::Start(std::move(options)));
  std::printf("image %s\n", image.c_str());
  if (has_efi) std::printf("http://%s/boot.efi\n", server->address().c_str());
  if (const std::string https = server->https_address(); !https.empty())
    std::printf("https://%s/boot.ipxe\n", https.c_str());
  OB_RETURN_IF_ERROR(
      TellReady(flags.ready, absl::StrCat("http://", server->address(), "/boot.ipxe")));
  return AwaitEnd(flags.life_fd);
}

}  // namespace

int RunBoot(const BootFlags& flags) { return Report(Boot(flags)); }

}  // namespace outboard::cli
