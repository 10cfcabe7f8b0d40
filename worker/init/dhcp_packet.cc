#include "worker/init/dhcp_packet.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace outboard::worker {
namespace {

// Places in the fixed part of a message.
constexpr size_t kTransactionAt = 4, kSecondsAt = 8, kFlagsAt = 10, kClientAt = 12, kYoursAt = 16,
                 kMacAt = 28, kCookieAt = 236, kOptionsAt = 240;
constexpr size_t kLeastBytes = 300, kMostBytes = 1500;
constexpr uint32_t kCookie = 0x63825363;
constexpr size_t kDnsMax = 3;  // what resolvers read of resolv.conf
constexpr int kMtuLeast = 576, kMtuMost = 9216;

enum Code : uint8_t {
  kPad = 0,
  kNetmask = 1,
  kRouter = 3,
  kDns = 6,
  kMtu = 26,
  kRequested = 50,
  kLease = 51,
  kType = 53,
  kServer = 54,
  kParameters = 55,
  kEnd = 255
};

void Put32(std::string& out, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) out[at + i] = static_cast<char>(value >> (24 - 8 * i));
}

uint32_t Get(std::string_view bytes) {
  uint32_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

void AddOption(std::string& out, Code code, std::string_view value) {
  out.push_back(static_cast<char>(code));
  out.push_back(static_cast<char>(value.size()));
  out.append(value);
}

void AddOption(std::string& out, Code code, uint32_t value) {
  std::string bytes(4, '\0');
  Put32(bytes, 0, value);
  AddOption(out, code, bytes);
}

absl::Status Bad(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("a DHCP answer ", std::string(what)));
}

// 24 of 255.255.255.0; -1 where the ones are not together.
int PrefixOf(uint32_t netmask) {
  const int ones = std::popcount(netmask);
  return netmask == (ones == 0 ? 0 : ~uint32_t{0} << (32 - ones)) ? ones : -1;
}

// Of a host: not 0.x, loopback, multicast or broadcast.
bool IsHost(Ipv4 address) {
  const uint32_t first = address >> 24;
  return first != 0 && first != 127 && first < 224;
}

}  // namespace

std::string ToString(Ipv4 address) {
  return absl::StrCat(address >> 24, ".", address >> 16 & 255, ".", address >> 8 & 255, ".",
                      address & 255);
}

std::string Encode(const DhcpQuestion& question) {
  std::string out(kOptionsAt, '\0');
  out[0] = 1;  // a request
  out[1] = 1;  // Ethernet
  out[2] = 6;  // bytes of its addresses
  Put32(out, kTransactionAt, question.transaction);
  out[kSecondsAt] = static_cast<char>(question.seconds >> 8);
  out[kSecondsAt + 1] = static_cast<char>(question.seconds);
  // Answers by broadcast: a client without an address hears nothing else.
  out[kFlagsAt] = static_cast<char>(0x80);
  Put32(out, kClientAt, question.client);
  std::memcpy(out.data() + kMacAt, question.mac.data(), question.mac.size());
  Put32(out, kCookieAt, kCookie);
  AddOption(out, kType, std::string(1, static_cast<char>(question.type)));
  if (question.requested != 0) AddOption(out, kRequested, question.requested);
  if (question.server != 0) AddOption(out, kServer, question.server);
  AddOption(out, kParameters, std::string({kNetmask, kRouter, kDns, kMtu, kLease, kServer}));
  out.push_back(static_cast<char>(kEnd));
  out.resize(std::max(out.size(), kLeastBytes), '\0');
  return out;
}

absl::StatusOr<DhcpAnswer> DecodeDhcp(std::string_view bytes, uint32_t transaction,
                                      const MacAddress& mac) {
  if (bytes.size() < kOptionsAt || bytes.size() > kMostBytes)
    return Bad(absl::StrCat("of ", bytes.size(), " bytes"));
  if (bytes[0] != 2 || Get(bytes.substr(kCookieAt, 4)) != kCookie) return Bad("that is none");
  if (Get(bytes.substr(kTransactionAt, 4)) != transaction ||
      std::memcmp(bytes.data() + kMacAt, mac.data(), mac.size()) != 0)
    return Bad("to somebody else");
  DhcpAnswer answer;
  answer.address = Get(bytes.substr(kYoursAt, 4));
  uint8_t type = 0;
  for (std::string_view rest = bytes.substr(kOptionsAt); !rest.empty();) {
    const auto code = static_cast<uint8_t>(rest[0]);
    if (code == kEnd) break;
    if (code == kPad) {
      rest.remove_prefix(1);
      continue;
    }
    if (rest.size() < 2 || rest.size() - 2 < static_cast<uint8_t>(rest[1]))
      return Bad("whose options do not end where they say");
    const std::string_view value = rest.substr(2, static_cast<uint8_t>(rest[1]));
    rest.remove_prefix(2 + value.size());
    const bool is_address = value.size() >= 4 && value.size() % 4 == 0;
    if (code == kType && value.size() == 1) type = static_cast<uint8_t>(value[0]);
    if (code == kNetmask && value.size() == 4) answer.prefix = PrefixOf(Get(value));
    if (code == kRouter && is_address) answer.router = Get(value.substr(0, 4));
    if (code == kServer && value.size() == 4) answer.server = Get(value);
    if (code == kLease && value.size() == 4) answer.lease_s = std::max(Get(value), kLeaseLeastS);
    if (code == kMtu && value.size() == 2) answer.mtu = static_cast<int>(Get(value));
    if (code == kDns && is_address && answer.dns.empty())
      for (size_t i = 0; i < value.size() && answer.dns.size() < kDnsMax; i += 4)
        if (const Ipv4 dns = Get(value.substr(i, 4)); IsHost(dns)) answer.dns.push_back(dns);
  }
  if (type != static_cast<uint8_t>(DhcpType::kOffer) &&
      type != static_cast<uint8_t>(DhcpType::kAck) && type != static_cast<uint8_t>(DhcpType::kNak))
    return Bad(absl::StrCat("of type ", static_cast<int>(type)));
  answer.type = static_cast<DhcpType>(type);
  if (answer.type == DhcpType::kNak) return answer;
  if (!IsHost(answer.address)) return Bad("without an address for a host");
  if (answer.server == 0) return Bad("without its server");
  if (answer.lease_s == 0) return Bad("without the time of its lease");
  if (answer.prefix < 1) return Bad("with a netmask that is none");
  if (answer.router != 0 && !IsHost(answer.router)) return Bad("with a router that is no host");
  if (answer.mtu < kMtuLeast || answer.mtu > kMtuMost) answer.mtu = 0;
  return answer;
}

}  // namespace outboard::worker
