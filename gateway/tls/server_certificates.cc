#include "gateway/tls/server_certificates.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "telemetry/log.h"
#include "wire/tls/private_file.h"

namespace outboard::gateway {
namespace {

// As often as gRPC looks at the file that is written here.
constexpr std::chrono::seconds kLookEvery{1};

// Changes when a file does.
std::string StampOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return "none";
  return absl::StrCat(info.st_ino, ".", info.st_size, ".", info.st_mtim.tv_sec, ".",
                      info.st_mtim.tv_nsec);
}

bool Covers(const tls::Certificate& certificate, const std::vector<std::string>& wanted) {
  const std::vector<std::string> has = certificate.names();
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& name) {
    return std::find(has.begin(), has.end(), name) != has.end();
  });
}

}  // namespace

absl::Status CheckOptions(const TlsOptions& options) {
  if (options.certificate_file.empty() != options.key_file.empty())
    return absl::InvalidArgumentError("--tls-cert and --tls-key belong together: give both");
  if (options.insecure &&
      (options.clients_here || options.workers_here || !options.certificate_file.empty()))
    return absl::InvalidArgumentError(
        "--insecure asks for connections without TLS, and --tls or --tls-cert for ones with it");
  return absl::OkStatus();
}

bool HasTls(const std::string& address, bool is_local, bool here, const TlsOptions& options) {
  // Within the process, or by a socket of which the kernel knows who opens it.
  if (address.empty() || address.starts_with("unix:")) return false;
  return !options.insecure && (here || !is_local);
}

ServerCertificates::ServerCertificates(const std::string& data_folder, const TlsOptions& options,
                                       tls::Authority authority)
    : data_folder_(data_folder),
      options_(options),
      authority_(std::move(authority)),
      own_path_(TlsFolder(data_folder) + "/server.pem"),
      given_path_(TlsFolder(data_folder) + "/given.pem") {
  // As Covers reads them in a certificate.
  for (std::string& name : options_.names) name = CanonicalName(name);
}

absl::StatusOr<std::unique_ptr<ServerCertificates>> ServerCertificates::Start(
    const std::string& data_folder, const TlsOptions& options) {
  for (const std::string& name : options.names) OB_RETURN_IF_ERROR(tls::CheckCertificateName(name));
  // A certificate that lacks some of them would be renewed for ever.
  if (const size_t most = tls::kNamesMax - NamesOfEveryMachine().size();
      options.names.size() > most)
    return absl::InvalidArgumentError(absl::StrCat("--tls-name is given ", options.names.size(),
                                                   " times; a certificate has room for ", most));
  OB_ASSIGN_OR_RETURN(tls::Authority authority, EnsureAuthority(data_folder));
  std::unique_ptr<ServerCertificates> certificates(
      new ServerCertificates(data_folder, options, std::move(authority)));
  OB_RETURN_IF_ERROR(certificates->RenewOwn());
  if (certificates->has_given()) OB_RETURN_IF_ERROR(certificates->CopyGiven());
  certificates->thread_ = std::thread([raw = certificates.get()] { raw->Follow(); });
  return certificates;
}

ServerCertificates::~ServerCertificates() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::string ServerCertificates::FingerprintForClients() const {
  if (!has_given()) return authority_.certificate().fingerprint().ToString();
  std::lock_guard lock(mutex_);
  return given_fingerprint_;
}

absl::Status ServerCertificates::RenewOwn() {
  const auto pem = tls::ReadFile(own_path_, /*is_secret=*/true);
  if (absl::IsFailedPrecondition(pem.status())) return pem.status();
  if (pem.ok()) {
    const auto own = tls::KeyAndChain::Parse(own_path_, *pem, *pem);
    const bool is_ours =
        own.ok() && own->chain.back().fingerprint() == authority_.certificate().fingerprint();
    if (is_ours && Covers(own->chain.front(), options_.names) &&
        absl::Now() < tls::RenewAt(own->chain.front().not_before(), own->chain.front().not_after()))
      return absl::OkStatus();
  }
  return IssueServerFile(authority_, own_path_, NamesOfThisMachine(options_.names),
                         options_.server_lifetime_s, tls::Replace::kYes);
}

absl::Status ServerCertificates::CopyGiven() {
  const std::string stamp = StampOf(options_.certificate_file) + " " + StampOf(options_.key_file);
  if (stamp == given_stamp_) return absl::OkStatus();
  OB_ASSIGN_OR_RETURN(const std::string chain,
                      tls::ReadFile(options_.certificate_file, /*is_secret=*/false));
  OB_ASSIGN_OR_RETURN(const std::string key, tls::ReadFile(options_.key_file, /*is_secret=*/true));
  OB_ASSIGN_OR_RETURN(
      const tls::KeyAndChain given,
      tls::KeyAndChain::Parse(absl::StrCat(options_.certificate_file, " and ", options_.key_file),
                              key, chain));
  OB_RETURN_IF_ERROR(
      tls::WriteFile(given_path_, given.ToPem(), /*is_secret=*/true, tls::Replace::kYes));
  const tls::Certificate& leaf = given.chain.front();
  const std::string fingerprint = leaf.fingerprint().ToString();
  // What `key create` prints. At the start the gateway writes it, which knows whether its clients
  // have TLS at all.
  if (!given_stamp_.empty()) {
    OB_ASSIGN_OR_RETURN(const std::string written, gateway::FingerprintForClients(data_folder_));
    if (!written.empty() && written != fingerprint)
      OB_RETURN_IF_ERROR(WriteFingerprint(data_folder_, fingerprint));
  }
  given_stamp_ = stamp;
  if (leaf.not_after() < absl::Now())
    telemetry::LogWarning("certificate_expired", {{"file", options_.certificate_file},
                                                  {"effect", "clients will refuse it"}});
  std::lock_guard lock(mutex_);
  given_fingerprint_ = fingerprint;
  return absl::OkStatus();
}

void ServerCertificates::Follow() {
  std::string told;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kLookEvery, [this] { return stopping_; })) {
    lock.unlock();
    absl::Status status = RenewOwn();
    if (status.ok() && has_given()) status = CopyGiven();
    // Once per reason: it is looked at every second. What was read before is presented meanwhile.
    if (const std::string why(status.message()); std::exchange(told, why) != why && !why.empty())
      telemetry::LogWarning("certificate_not_renewed", {{"message", why}});
    lock.lock();
  }
}

}  // namespace outboard::gateway
