#include "wire/proof/receipt.h"

#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/hex.h"

namespace outboard::signing {

std::string PhysicalDevice(std::string_view receipt_key, uint32_t device) {
  constexpr size_t kBytes = 16;  // no two keys begin with the same
  return absl::StrCat(ToHex(receipt_key.substr(0, kBytes)), "/", device);
}

namespace {

constexpr std::string_view kReceiptTag = "outboard.receipt.1";
constexpr uint64_t kNumberMax = INT64_MAX;

bool IsDeviceOf(std::string_view key, std::string_view physical_device) {
  const size_t slash = physical_device.rfind('/');
  uint32_t device = 0;
  return slash != std::string_view::npos &&
         absl::SimpleAtoi(std::string(physical_device.substr(slash + 1)), &device) &&
         physical_device == PhysicalDevice(key, device);
}

std::string Statement(const proto::Receipt& receipt) {
  return StatementBytes(kReceiptTag)
      .Bytes(receipt.session_id())
      .Int(static_cast<int64_t>(receipt.grant()))
      .Int(receipt.device())
      .Int(static_cast<int64_t>(receipt.number()))
      .Int(static_cast<int64_t>(receipt.usable_ms()))
      .Int(static_cast<int64_t>(receipt.busy_ms()))
      .Bytes(receipt.physical_device())
      .str();
}

}  // namespace

void Sign(const SigningKey& key, proto::Receipt& receipt) {
  receipt.set_key(key.public_key());
  receipt.set_signature(key.Sign(Statement(receipt)));
}

absl::Status CheckReceipt(const proto::Receipt& receipt) {
  if (receipt.session_id().size() != 16 || receipt.grant() == 0 || receipt.grant() > kNumberMax ||
      receipt.number() == 0 || receipt.number() > kNumberMax || receipt.usable_ms() > kNumberMax ||
      receipt.busy_ms() > receipt.usable_ms() ||
      receipt.physical_device().size() > kPhysicalDeviceBytesMax ||
      !IsDeviceOf(receipt.key(), receipt.physical_device()))
    return absl::DataLossError("a receipt that no worker writes");
  if (!IsSignedBy(receipt.key(), Statement(receipt), receipt.signature()))
    return absl::DataLossError("the signature of a receipt is not that of its key");
  return absl::OkStatus();
}

}  // namespace outboard::signing
