#include "client/session/protection.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/session/address.h"
#include "wire/tls/handshake.h"
#include "wire/tls/private_file.h"

namespace outboard::session {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// "CLOUD_INSECURE=no" must not send anybody's key in the clear.
absl::StatusOr<bool> SwitchIn(const char* name) {
  const std::string value = Variable(name);
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is \"", absl::CHexEscape(value.substr(0, 100)), "\": write 1 or 0"));
}

// As gRPC reads targets: a host may be called "unix-box.example.org".
bool IsUnixSocket(std::string_view target) {
  return target.starts_with("unix:") || target.starts_with("unix-abstract:");
}

}  // namespace

absl::StatusOr<Protection> Protection::Trusting(const std::string& ca_file,
                                                const std::string& fingerprint,
                                                const TrustNames& names) {
  Protection protection;
  if (!ca_file.empty()) {
    const auto pem = tls::ReadFile(ca_file, /*is_secret=*/false);
    if (!pem.ok())
      return absl::InvalidArgumentError(absl::StrCat(names.ca, ": ", pem.status().message()));
    auto roots = tls::Certificate::ParseAll(absl::StrCat(names.ca, ": ", ca_file), *pem);
    if (!roots.ok()) return roots.status();
    protection.trust.roots = *std::move(roots);
  }
  if (!fingerprint.empty()) {
    OB_ASSIGN_OR_RETURN(protection.trust.pinned,
                        tls::Fingerprint::Parse(names.fingerprint, fingerprint));
  }
  protection.also_here = !ca_file.empty() || !fingerprint.empty();
  return protection;
}

absl::StatusOr<Protection> Protection::FromEnvironment() {
  OB_ASSIGN_OR_RETURN(Protection protection,
                      Trusting(Variable("CLOUD_CA"), Variable("CLOUD_FINGERPRINT"), {}));
  OB_ASSIGN_OR_RETURN(const bool also_here, SwitchIn("CLOUD_TLS"));
  protection.also_here |= also_here;
  OB_ASSIGN_OR_RETURN(protection.in_the_clear, SwitchIn("CLOUD_INSECURE"));
  if (protection.in_the_clear && protection.also_here)
    return absl::InvalidArgumentError(
        "CLOUD_INSECURE=1 asks for connections without TLS, and CLOUD_TLS, CLOUD_CA or "
        "CLOUD_FINGERPRINT for ones with it; unset one of them");
  return protection;
}

bool Protection::UsesTls(const std::string& target) const {
  if (in_the_clear || IsUnixSocket(target)) return false;
  return also_here || !IsOnThisMachine(target);
}

absl::Status Protection::Explain(const std::string& target, absl::Status otherwise,
                                 std::chrono::milliseconds within) const {
  if (IsUnixSocket(target)) return otherwise;
  const tls::Handshake found = tls::ShakeHands(target, within);
  if (!UsesTls(target)) {
    if (found.speaks != tls::Speaks::kTls) return otherwise;
    return absl::UnavailableError(absl::StrCat(
        target, " speaks TLS, and this connection was to be without: ",
        in_the_clear ? "unset CLOUD_INSECURE"
                     : "set CLOUD_FINGERPRINT to what `outboard key create` prints there, CLOUD_CA "
                       "to its CA's file, or CLOUD_TLS=1 to trust what this system trusts"));
  }
  if (found.speaks == tls::Speaks::kOther)
    return absl::UnavailableError(absl::StrCat(
        target,
        " does not speak TLS, so nothing was sent to it: a key would be readable on the way. ",
        IsOnThisMachine(target)
            ? "For a connection that stays on this machine unset CLOUD_FINGERPRINT, CLOUD_CA and "
              "CLOUD_TLS"
            : "If you trust the network between, CLOUD_INSECURE=1 sends it all the same"));
  if (found.speaks != tls::Speaks::kTls) return otherwise;
  if (found.chain.empty())
    return absl::UnavailableError(absl::StrCat(target, " ended the TLS handshake: ", found.alert));
  const absl::Status status = tls::CheckServer(found.chain, tls::HostOf(target), trust);
  if (status.ok()) return otherwise;
  return absl::UnavailableError(absl::StrCat(
      target, " is not trusted, so nothing was sent to it: ", status.message(),
      trust.roots.empty() && !trust.pinned.has_value()
          ? "; for a gateway with a CA of its own set CLOUD_FINGERPRINT to what `outboard key "
            "create` prints there, or CLOUD_CA to its CA's file (docs/tls.md)"
          : " (docs/tls.md)"));
}

}  // namespace outboard::session
