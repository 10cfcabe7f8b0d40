#include "worker/init/node_config.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace outboard::worker {
namespace {

constexpr size_t kValueBytesMax = 256;
constexpr int kJoinsWithinMinS = 10;

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// Calls `take` with NAME and VALUE of each word.
template <typename Take>
absl::Status ForEach(std::string_view text, std::string_view separators, const char* where,
                     const Take& take) {
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(separators), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
    std::string* const into = take(name);
    if (into == nullptr) continue;
    if (value.size() > kValueBytesMax || !IsPrintable(value))
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": ", std::string(name), " is no text of at most ", kValueBytesMax, " bytes"));
    *into = std::string(value);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NodeConfig> ParseNodeConfig(std::string_view image, std::string_view command_line) {
  NodeConfig config;
  std::string built, debug, joins_within, tpm;
  const auto in_image = [&](std::string_view name) -> std::string* {
    if (name == "fingerprint") return &config.fingerprint;
    if (name == "built") return &built;
    if (name == "gateway") return &config.gateway;
    if (name == "debug") return &debug;
    return nullptr;
  };
  if (absl::Status status = ForEach(image, "\n", "the image", in_image); !status.ok())
    return status;
  const auto on_line = [&](std::string_view name) -> std::string* {
    if (name == "outboard.gateway") return &config.gateway;
    if (name == "outboard.claim") return &config.claim;
    if (name == "outboard.image") return &config.image;
    if (name == "outboard.boot") return &config.boot_server;
    if (name == "outboard.joins_within") return &joins_within;
    if (name == "outboard.tpm") return &tpm;
    return nullptr;
  };
  if (absl::Status status = ForEach(command_line, " \t\n", "the kernel's command line", on_line);
      !status.ok())
    return status;
  config.debug = debug == "1";
  if (!absl::SimpleAtoi(built, &config.built_unix_s) || config.built_unix_s <= 0)
    return absl::InvalidArgumentError("the image does not say when it was built");
  if (!IsSha256Name(config.fingerprint))
    return absl::InvalidArgumentError("the image has no fingerprint of a gateway's CA");
  if (!joins_within.empty() && (!absl::SimpleAtoi(joins_within, &config.joins_within_s) ||
                                config.joins_within_s < kJoinsWithinMinS))
    return absl::InvalidArgumentError(absl::StrCat(
        "outboard.joins_within is no number of seconds of at least ", kJoinsWithinMinS));
  if (!tpm.empty() && tpm != "none")
    return absl::InvalidArgumentError("outboard.tpm is \"none\" where the TPM is to be left alone");
  config.leaves_tpm = tpm == "none";
  if (!config.image.empty() && !IsSha256Name(config.image))
    return absl::InvalidArgumentError("outboard.image is no digest, sha256: and 64 hex digits");
  if (config.gateway.empty())
    return absl::InvalidArgumentError(
        "no gateway: neither the image nor outboard.gateway= of the kernel's command line names "
        "it");
  return config;
}

}  // namespace outboard::worker
