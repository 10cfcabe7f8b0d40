#include "gateway/accounts/address_range.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::gateway {

namespace {

constexpr int kMappedBits = 96;  // of ::ffff:0:0/96, the IPv4 addresses among those of IPv6
constexpr size_t kTextBytesMax = INET6_ADDRSTRLEN + 4;  // with the longest prefix, "/128"

bool IsMapped(const IpAddress& address) {
  constexpr std::array<uint8_t, 12> kPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return address.bits == 128 && std::equal(kPrefix.begin(), kPrefix.end(), address.bytes.begin());
}

IpAddress Unmapped(const IpAddress& address) {
  IpAddress v4;
  std::copy_n(address.bytes.begin() + kMappedBits / 8, 4, v4.bytes.begin());
  return v4;
}

// As written: an IPv4 address in IPv6 is still IPv6.
std::optional<IpAddress> ReadAddress(std::string_view text) {
  const std::string ended(text);
  IpAddress address;
  if (inet_pton(AF_INET, ended.c_str(), address.bytes.data()) == 1) return address;
  address.bits = 128;
  if (inet_pton(AF_INET6, ended.c_str(), address.bytes.data()) == 1) return address;
  return std::nullopt;
}

bool SamePrefix(const IpAddress& a, const IpAddress& b, int bits) {
  for (int i = 0; i < bits; i += 8) {
    const int mask = bits - i >= 8 ? 0xff : 0xff & ~(0xff >> (bits - i));
    if (((a.bytes[i / 8] ^ b.bytes[i / 8]) & mask) != 0) return false;
  }
  return true;
}

IpAddress WithoutHostBits(IpAddress address, int prefix_bits) {
  for (int i = prefix_bits; i < address.bits; ++i)
    address.bytes[i / 8] &= static_cast<uint8_t>(~(0x80 >> (i % 8)));
  return address;
}

}  // namespace

absl::StatusOr<AddressRange> AddressRange::Parse(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const std::optional<IpAddress> address =
      text.size() <= kTextBytesMax ? ReadAddress(text.substr(0, slash)) : std::nullopt;
  AddressRange range;
  bool good = address.has_value();
  if (good) {
    range.first_ = *address;
    range.prefix_bits_ = address->bits;
    if (slash < text.size()) {
      const char* const end = text.data() + text.size();
      const auto [at, error] = std::from_chars(text.data() + slash + 1, end, range.prefix_bits_);
      good = error == std::errc() && at == end && range.prefix_bits_ >= 0 &&
             range.prefix_bits_ <= address->bits;
    }
  }
  if (!good) {  // does not repeat the input, which may be anything
    return absl::InvalidArgumentError(
        "that is no range of addresses; write one like 10.0.0.0/8, 192.168.1.7 or fd00::/8");
  }
  if (IsMapped(range.first_) && range.prefix_bits_ >= kMappedBits) {
    range.first_ = Unmapped(range.first_);
    range.prefix_bits_ -= kMappedBits;
  }
  const AddressRange given = range;
  range.first_ = WithoutHostBits(range.first_, range.prefix_bits_);
  if (range == given) return range;
  return absl::InvalidArgumentError(absl::StrCat("the range of addresses ", given.ToString(),
                                                 " begins at ", range.ToString(),
                                                 "; write that, or one address without a prefix"));
}

bool AddressRange::Contains(const IpAddress& address) const {
  return address.bits == first_.bits && SamePrefix(address, first_, prefix_bits_);
}

bool AddressRange::Covers(const AddressRange& other) const {
  return prefix_bits_ <= other.prefix_bits_ && Contains(other.first_);
}

std::string AddressRange::ToString() const {
  char text[INET6_ADDRSTRLEN];
  const int family = first_.bits == 32 ? AF_INET : AF_INET6;
  OB_CHECK(inet_ntop(family, first_.bytes.data(), text, sizeof text) != nullptr);
  if (prefix_bits_ == first_.bits) return text;
  return absl::StrCat(text, "/", prefix_bits_);
}

std::vector<IpAddress> AddressesOfPeer(std::string_view peer) {
  // "fd:" is a peer on the socket for this machine only (abstract_listener.h). Of an in-process
  // channel gRPC does not know the peer; any socket has a name.
  const auto starts = [peer](std::string_view local) { return peer.starts_with(local); };
  if (peer.empty() || peer == "unknown" || starts("unix:") || starts("unix-abstract:") ||
      starts("fd:"))
    return {*ReadAddress("127.0.0.1"), *ReadAddress("::1")};
  const size_t colon = peer.find(':'), port = peer.rfind(':');
  if (colon == port || port == std::string_view::npos) return {};
  const bool is_v6 = peer.starts_with("ipv6:");
  if (!is_v6 && !peer.starts_with("ipv4:")) return {};
  std::string_view text = peer.substr(colon + 1, port - colon - 1);
  if (is_v6) {  // "[::1]" or, by the rules of URIs, "%5B::1%5D"; a zone follows another "%"
    for (std::string_view bracket : {"[", "%5B"})
      if (text.starts_with(bracket)) text.remove_prefix(bracket.size());
    for (std::string_view bracket : {"]", "%5D"})
      if (text.ends_with(bracket)) text.remove_suffix(bracket.size());
    text = text.substr(0, text.find('%'));
  }
  const std::optional<IpAddress> address = ReadAddress(text);
  if (!address.has_value()) return {};
  return {IsMapped(*address) ? Unmapped(*address) : *address};
}

bool AnyContains(const std::vector<AddressRange>& ranges, const std::vector<IpAddress>& addresses) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const AddressRange& range) {
    return std::any_of(addresses.begin(), addresses.end(),
                       [&](const IpAddress& address) { return range.Contains(address); });
  });
}

}  // namespace outboard::gateway
