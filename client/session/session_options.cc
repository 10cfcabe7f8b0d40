#include "client/session/session_options.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/micros.h"
#include "client/session/address.h"
#include "client/trace/trace.h"
#include "wire/limits.h"
#include "wire/proof/head_file.h"
#include "wire/session_name.h"

namespace outboard::session {

namespace {

constexpr int kQueueSecondsMax = 1'000'000;  // beyond a week nobody is thinking of seconds

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

absl::Status SessionOptions::CheckDevices() const {
  const uint32_t asked = devices.value_or(1);
  if (asked == 0 || asked > wire::kSessionDevicesMax)
    return absl::InvalidArgumentError(absl::StrCat("devices = ", asked, ": a session has 1 to ",
                                                   wire::kSessionDevicesMax));
  if (mesh.size() > wire::kMeshAxesMax)
    return absl::InvalidArgumentError(
        absl::StrCat("a mesh of ", mesh.size(), " axes; limit ", wire::kMeshAxesMax));
  uint64_t product = 1;  // of at most four numbers, each cut off above the limit
  for (const uint32_t size : mesh) product *= std::min(size, wire::kSessionDevicesMax + 1);
  if (!mesh.empty() && product != asked)
    return absl::InvalidArgumentError(absl::StrCat("mesh = ", absl::StrJoin(mesh, " x "), " has ",
                                                   product, " places for ", asked, " devices"));
  if (spread == "stages")
    return absl::UnimplementedError(
        "spread = \"stages\": pipeline stages are not there yet; write \"auto\", \"data\", "
        "\"fsdp\" or \"tensor\"");
  if (!spread.empty() && spread != "auto" && spread != "data" && spread != "fsdp" &&
      spread != "tensor")
    return absl::InvalidArgumentError(
        absl::StrCat("spread = \"", absl::CHexEscape(spread),
                     "\": write \"auto\", \"data\", \"fsdp\" or \"tensor\""));
  return absl::OkStatus();
}

absl::Status SessionOptions::CheckNames() const {
  if (!name.empty() && !wire::IsSessionName(name))
    return absl::InvalidArgumentError(absl::StrCat("a session's name is \"",
                                                   absl::CHexEscape(name.substr(0, 80)),
                                                   "\": write ", wire::kSessionNameRule));
  for (const std::string* const other : {&attach, &fork_of})
    if (!other->empty() && !wire::IsSessionName(*other) && !wire::IsSessionIdText(*other))
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", absl::CHexEscape(other->substr(0, 80)), "\" is no session's name or id"));
  if (!attach.empty() && (!name.empty() || !fork_of.empty()))
    return absl::InvalidArgumentError(
        "a session that is entered has its name and its state: name and fork_of are of a new one");
  return absl::OkStatus();
}

absl::StatusOr<SessionOptions> SessionOptions::FromEnvironment() {
  SessionOptions options;
  if (const std::string devices(Variable("CLOUD_DEVICES")); !devices.empty()) {
    if (!absl::SimpleAtoi(devices, &options.devices.emplace()) || !options.CheckDevices().ok())
      return absl::InvalidArgumentError(absl::StrCat("CLOUD_DEVICES is \"",
                                                     absl::CHexEscape(devices),
                                                     "\": write a number of devices, 1 to ",
                                                     wire::kSessionDevicesMax));
  }
  options.trace = trace::Trace::OfProcess();
  if (options.trace != nullptr)
    if (absl::Status status = options.trace->Check(); !status.ok()) return status;
  options.debug = std::atoi(std::string(Variable("DEBUG")).c_str()) >= 1;
  options.progress = options.debug;
  if (const std::string_view progress = Variable("CLOUD_PROGRESS"); !progress.empty())
    options.progress = progress != "0";
  const std::string cloud(Variable("CLOUD"));
  if (cloud.empty() || cloud == "0") return options;
  // "CLOUD=no" must not send anybody's data anywhere.
  if (cloud != "1")
    return absl::InvalidArgumentError(
        absl::StrCat("CLOUD is \"", absl::CHexEscape(cloud), "\": write 1 or 0"));
  options.target = absl::StrCat("localhost:", kDefaultPort);
  if (std::getenv("CLOUD_HOST") != nullptr) options.target = Variable("CLOUD_HOST");
  options.key = Variable("CLOUD_KEY");
  if (absl::Status status = CheckTarget("CLOUD_HOST", options.target); !status.ok()) return status;
  if (absl::Status status = CheckKeyText("CLOUD_KEY", options.key); !status.ok()) return status;
  OB_ASSIGN_OR_RETURN(options.protection, Protection::FromEnvironment());
  options.heads_file = signing::HeadFilePath();
  if (const std::string_view most = Variable("CLOUD_MAX_COST"); !most.empty()) {
    const absl::StatusOr<int64_t> micros = ParseMicros(most);
    // "CLOUD_MAX_COST=0" would not mean "no bound" to everybody.
    if (!micros.ok() || *micros <= 0)
      return absl::InvalidArgumentError(
          absl::StrCat("CLOUD_MAX_COST is \"", absl::CHexEscape(std::string(most)),
                       "\": write US dollars, such as 2 or 0.50; unset it for no bound"));
    options.max_cost_micro_usd = static_cast<uint64_t>(*micros);
  }
  if (const std::string wait(Variable("CLOUD_QUEUE_S")); !wait.empty()) {
    double seconds = 0;
    if (!absl::SimpleAtod(wait, &seconds) || !(seconds >= 0 && seconds <= kQueueSecondsMax))
      return absl::InvalidArgumentError(absl::StrCat(
          "CLOUD_QUEUE_S is \"", absl::CHexEscape(wait),
          "\": write the seconds to wait for a device, up to ", kQueueSecondsMax,
          "; unset it to wait as long as it takes"));
    options.queue_timeout = std::chrono::milliseconds(std::llround(seconds * 1000));
  }
  options.name = Variable("CLOUD_SESSION_NAME");
  options.attach = Variable("CLOUD_ATTACH");
  options.fork_of = Variable("CLOUD_FORK_OF");
  if (absl::Status status = options.CheckNames(); !status.ok())
    return absl::Status(status.code(),
                        absl::StrCat("CLOUD_SESSION_NAME, CLOUD_ATTACH, CLOUD_FORK_OF: ",
                                     status.message()));
  if (const std::string gang(Variable("CLOUD_GANG")); !gang.empty()) {
    const size_t colon = gang.rfind(':');
    options.gang = gang.substr(0, colon);
    if (colon == std::string::npos || options.gang.empty() ||
        !absl::SimpleAtoi(gang.substr(colon + 1), &options.gang_size) || options.gang_size < 1 ||
        options.gang_size > wire::kGangSizeMax)
      return absl::InvalidArgumentError(absl::StrCat(
          "CLOUD_GANG is \"", absl::CHexEscape(gang),
          "\": write a name and how many sessions start together, up to ", wire::kGangSizeMax,
          ", such as sweep7:8"));
  }
  options.device_class = Variable("CLOUD_CLASS");
  if (const std::string memory(Variable("CLOUD_MEMORY")); !memory.empty()) {
    const std::optional<uint64_t> bytes = ParseBytes(memory);
    if (!bytes.has_value() || *bytes == 0)
      return absl::InvalidArgumentError(absl::StrCat(
          "CLOUD_MEMORY is \"", absl::CHexEscape(memory),
          "\": write the memory that a device is to have, such as 512MB, 1.5GB or 8GiB"));
    options.device_memory_bytes = *bytes;
  }
  return options;
}

}  // namespace outboard::session
