#include "cli/server_options.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/host_port.h"
#include "client/session/address.h"
#include "gateway/server/fleet_secret.h"
#include "runtime/devices.h"
#include "telemetry/log.h"
#include "worker/executor/executor_main.h"
#include "worker/process/child_process.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::cli {
namespace {

constexpr size_t kProxySecretBytesMin = 32;  // 128 bits in hex
constexpr std::string_view kAnyDevice = "auto";

// The secret that was given, or "". Executors do not inherit it. `fingerprint`: as in
// ReadFleetSecret.
absl::StatusOr<std::string> GivenFleetSecret(const ServerFlags& flags,
                                             std::string* fingerprint = nullptr) {
  if (const std::string secret = TakeSecret("OUTBOARD_FLEET_SECRET"); !secret.empty()) {
    OB_RETURN_IF_ERROR(session::CheckKeyText("OUTBOARD_FLEET_SECRET", secret));
    return secret;
  }
  if (flags.fleet_secret_file.empty()) return "";
  auto secret = gateway::ReadFleetSecret(flags.fleet_secret_file, fingerprint);
  if (secret.ok()) return secret;
  return absl::InvalidArgumentError(
      absl::StrCat("--fleet-secret-file: ", secret.status().message()));
}

// OUTBOARD_DEVICE=auto: for this process and those that it starts, cuda where the machine has
// NVIDIA's GPUs and their driver, else cpu, and one line why.
void ChooseDevice() {
  constexpr char kDevice[] = "OUTBOARD_DEVICE";
  const char* const named = std::getenv(kDevice);
  if (named == nullptr || std::string_view(named) != kAnyDevice) return;
  absl::Status found = runtime::TryDeviceKind(runtime::kCuda);
  const size_t gpus = found.ok() ? runtime::ListDevices(runtime::kCuda).size() : 0;
  if (found.ok() && gpus == 0) found = absl::UnavailableError("CUDA: no device answers");
  setenv(kDevice, std::string(found.ok() ? runtime::kCuda : runtime::kCpu).c_str(), 1);
  if (found.ok())
    telemetry::LogInfo("device_chosen", {{"device", runtime::kCuda}, {"count", gpus}});
  else
    telemetry::LogWarning("device_chosen", {{"device", runtime::kCpu},
                                            {"message", found.message()},
                                            {"effect", "this worker serves its processor"}});
}

absl::Status CheckDevice() {
  return runtime::CheckDeviceKind(worker::ExecutorOptionsFromEnvironment().device);
}

absl::Status CheckCompiler() {
  const std::string compiler = worker::ProgramBeside("outboard-compiler");
  if (access(compiler.c_str(), X_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      compiler, " is not there: a worker compiles with it; copy both programs into one folder"));
}

}  // namespace

absl::StatusOr<std::string> FleetSecretOfWorker(const ServerFlags& flags,
                                                std::string* fingerprint) {
  OB_ASSIGN_OR_RETURN(const std::string given, GivenFleetSecret(flags, fingerprint));
  if (!given.empty()) return given;
  // Another machine's gateway has another secret, and is not to learn this one.
  if (session::IsOnThisMachine(flags.gateway)) {
    auto secret =
        gateway::ReadFleetSecret(gateway::FleetSecretPath(DefaultDataFolder()), fingerprint);
    if (!absl::IsNotFound(secret.status())) return secret;
  }
  return absl::InvalidArgumentError(
      "a worker needs the fleet secret of its gateway: give --fleet-secret-file a copy of "
      "fleet.secret in the gateway's data folder");
}

std::string FleetListenFor(const std::string& listen) {
  if (listen.starts_with("unix:")) return listen + ".fleet";
  const std::optional<HostPort> place = SplitHostPort(listen);
  if (!place.has_value()) return "";
  if (place->port == 65535) return "127.0.0.1:65534";
  return absl::StrCat("127.0.0.1:", place->port == 0 ? 0 : place->port + 1);
}

absl::StatusOr<session::Protection> ProtectionOfWorker(const ServerFlags& flags,
                                                       const std::string& fingerprint) {
  const bool is_told = !flags.tls_ca_file.empty() || !flags.tls_fingerprint.empty();
  if (flags.insecure && (flags.tls || is_told))
    return absl::InvalidArgumentError(
        "--insecure asks for a connection without TLS, and --tls, --tls-ca or --tls-fingerprint "
        "for one with it");
  OB_ASSIGN_OR_RETURN(session::Protection protection,
                      session::Protection::Trusting(
                          flags.tls_ca_file, is_told ? flags.tls_fingerprint : fingerprint,
                          {.ca = "--tls-ca",
                           .fingerprint = is_told ? "--tls-fingerprint"
                                                  : "the fingerprint in the file of the "
                                                    "fleet secret"}));
  protection.also_here = flags.tls || is_told;
  protection.in_the_clear = flags.insecure;
  return protection;
}

absl::StatusOr<std::shared_ptr<worker::GroupLinks>> LinksOf(const ServerFlags& flags) {
  const std::string& advertised = flags.advertise_data_address;
  if (flags.data_address.empty()) {
    if (advertised.empty()) return nullptr;
    return absl::InvalidArgumentError(
        "--advertise-data-address says where others reach --data-address, which is missing");
  }
  return worker::GroupLinks::Listen(flags.data_address, advertised);
}

std::string IdentityPath(const ServerFlags& flags) {
  if (!flags.identity_file.empty()) return flags.identity_file;
  std::string name = flags.name.empty() ? "default" : flags.name;
  for (char& c : name)
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  return DefaultDataFolder() + "/workers/" + name;
}

absl::StatusOr<std::string> GivenToken(const ServerFlags& flags) {
  if (const std::string token = TakeSecret("OUTBOARD_WORKER_TOKEN"); !token.empty()) {
    OB_RETURN_IF_ERROR(session::CheckKeyText("OUTBOARD_WORKER_TOKEN", token));
    return token;
  }
  if (flags.token_file.empty()) return "";
  auto token = gateway::ReadFleetSecret(flags.token_file);  // a file of the same kind
  if (token.ok()) return token;
  return absl::InvalidArgumentError(absl::StrCat("--token-file: ", token.status().message()));
}

absl::StatusOr<gateway::GatewayOptions> OptionsFor(const ServerFlags& flags,
                                                   int snapshot_every_s) {
  gateway::GatewayOptions options;
  options.listen = flags.listen;
  options.data_folder = DataFolderOr(flags.data);
  options.no_auth = flags.no_auth;
  OB_ASSIGN_OR_RETURN(options.fleet_secret, GivenFleetSecret(flags));
  if (absl::Status status = session::CheckTarget("--listen", flags.listen, /*lowest_port=*/0);
      !status.ok())
    return status;
  options.tls = {.insecure = flags.insecure,
                 .clients_here = flags.tls,
                 .certificate_file = flags.tls_certificate_file,
                 .key_file = flags.tls_key_file,
                 .names = flags.tls_names,
                 .worker_lifetime_s = flags.worker_certificate_s};
  if (!flags.proxy_secret_file.empty()) {
    auto secret = gateway::ReadFleetSecret(flags.proxy_secret_file);
    if (!secret.ok())
      return absl::InvalidArgumentError(
          absl::StrCat("--proxy-secret-file: ", secret.status().message()));
    // Whoever guesses it chooses the address that keys are bound to.
    if (secret->size() < kProxySecretBytesMin)
      return absl::InvalidArgumentError(absl::StrCat(
          "--proxy-secret-file: ", flags.proxy_secret_file, " holds ", secret->size(),
          " characters; at least ", kProxySecretBytesMin, " are needed: openssl rand -hex 32"));
    options.proxy_secret = *std::move(secret);
  }
  options.quota_bytes = flags.quota_bytes;
  options.quota_objects = flags.quota_objects;
  for (const std::string& text : flags.proxies) {
    auto range = gateway::AddressRange::Parse(text);
    if (!range.ok())
      return absl::InvalidArgumentError(absl::StrCat("--proxy: ", range.status().message()));
    options.proxies.push_back(*range);
  }
  options.connections_per_address = static_cast<size_t>(flags.connections_per_address);
  options.account.openings_per_minute = flags.openings_per_minute;
  options.core.sessions_per_tenant_max = static_cast<uint32_t>(flags.sessions_per_account);
  options.core.devices_per_tenant_max = static_cast<uint32_t>(flags.devices_per_account);
  // A private worker has nobody else to give its devices to.
  const int idle_s = flags.idle_s.value_or(
      flags.ephemeral ? 0 : static_cast<int>(options.core.sleep_ns / gateway::kSecondNs));
  options.core.sleep_ns = idle_s * gateway::kSecondNs;
  options.core.sleep_lead_ns = std::min(options.core.sleep_lead_ns, options.core.sleep_ns / 2);
  options.core.memory_bytes_max = flags.session_memory_bytes;
  options.core.snapshot_ns = flags.snapshot_every_s.value_or(snapshot_every_s) * gateway::kSecondNs;
  options.core.worker_timeout_ns = flags.worker_timeout_s * gateway::kSecondNs;
  OB_ASSIGN_OR_RETURN(options.credit_limit,
                      CreditLimitFrom("--credit-limit", flags.credit_limit_usd));
  options.core.price_per_hour = {std::llround(flags.price_per_hour_usd * 1e6)};
  if (!flags.prices_file.empty()) {
    OB_ASSIGN_OR_RETURN(options.prices, PricesFrom(flags.prices_file));
  }
  return options;
}

absl::StatusOr<std::shared_ptr<const gateway::PriceList>> PricesFrom(const std::string& file) {
  auto list = gateway::ReadPriceList(file);
  if (!list.ok())
    return absl::InvalidArgumentError(absl::StrCat("--prices: ", list.status().message()));
  return std::make_shared<const gateway::PriceList>(*std::move(list));
}

absl::Status OwnFolder(const ServerFlags& flags, gateway::GatewayOptions& options) {
  std::error_code error;
  if (!flags.data.empty()) {
    bool used =
        std::filesystem::exists(flags.data, error) && !std::filesystem::is_empty(flags.data, error);
    if (!used && !error) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--ephemeral: ", flags.data, " is not an empty folder"));
  }
  std::string pattern = (std::filesystem::temp_directory_path() / "outboard-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return absl::UnavailableError("no temporary folder");
  options.data_folder = pattern;
  return absl::OkStatus();
}

int64_t MemoryOf(const ServerFlags& flags) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(flags.session_memory_bytes, kMost));
}

std::vector<std::string> ChooseIdleSearch(const ServerFlags& flags) {
  const bool off =
      flags.no_idle_search ||
      (std::getenv("OUTBOARD_IDLE_SEARCH") != nullptr && !IsSet("OUTBOARD_IDLE_SEARCH")) ||
      IsSet("REF") || IsSet("NOOPT") || worker::KernelStorePath().empty();
  setenv("OUTBOARD_IDLE_SEARCH", off ? "0" : "1", 1);
  if (off) return {};
  return {"/proc/self/exe", "search"};
}

int64_t SharedMemory() {
  const bool has_gpus =
      !runtime::ListDevices(worker::ExecutorOptionsFromEnvironment().device).empty();
  return has_gpus ? 0 : runtime::DefaultMemoryBytesMax();
}

absl::StatusOr<int> DevicesOf(const ServerFlags& flags, int otherwise) {
  const auto gpus = static_cast<int>(
      runtime::ListDevices(worker::ExecutorOptionsFromEnvironment().device).size());
  if (gpus == 0) return flags.devices > 0 ? flags.devices : otherwise;
  if (flags.workers > 1)
    return absl::InvalidArgumentError(
        absl::StrCat("--workers ", flags.workers,
                     ": one worker has all GPUs of this machine; leave it out, or start workers "
                     "with different CUDA_VISIBLE_DEVICES"));
  if (flags.devices > gpus)
    return absl::InvalidArgumentError(
        absl::StrCat("--devices ", flags.devices, ": this machine has ", gpus,
                     gpus == 1 ? " GPU" : " GPUs", ", each of which serves one session at a time"));
  return flags.devices > 0 ? flags.devices : gpus;
}

absl::Status CheckThisCanWork() {
  OB_RETURN_IF_ERROR(CheckCompiler());
  ChooseDevice();
  return CheckDevice();
}

}  // namespace outboard::cli
