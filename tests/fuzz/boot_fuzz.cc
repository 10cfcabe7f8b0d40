// What passes between a machine that boots over the network and who serves it, before either knows
// anything of the other: an answer of DHCP, a request to the boot server, the words of the kernel's
// command line. Each is refused, or makes sense; and what the boot server writes a node can read.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "cli/node/boot_script.h"
#include "gateway/base/node_serial.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/seeds.h"
#include "worker/init/dhcp_packet.h"
#include "worker/init/node_config.h"

namespace outboard {
namespace {

enum Kind : uint8_t { kDhcp, kRequest, kCommandLine, kKinds };

constexpr worker::MacAddress kMac{0x52, 0x54, 0, 1, 2, 3};
constexpr uint32_t kTransaction = 0x01020304;

std::string Image() {
  return "built=1\nfingerprint=sha256:" + std::string(64, 'a') + "\ngateway=gateway:6668\n";
}

void CheckHost(worker::Ipv4 address) {
  OB_CHECK(address >> 24 != 0 && address >> 24 != 127 && address >> 24 < 224);
}

void TryDhcp(std::string_view packet) {
  const auto answer = worker::DecodeDhcp(packet, kTransaction, kMac);
  if (!answer.ok() || answer->type == worker::DhcpType::kNak) return;
  CheckHost(answer->address);
  OB_CHECK(answer->prefix >= 1 && answer->prefix <= 32 && answer->server != 0);
  OB_CHECK(answer->lease_s >= worker::kLeaseLeastS);
  if (answer->router != 0) CheckHost(answer->router);
  OB_CHECK(answer->dns.size() <= 3);
  for (const worker::Ipv4 dns : answer->dns) CheckHost(dns);
  OB_CHECK(answer->mtu == 0 || (answer->mtu >= 576 && answer->mtu <= 9216));
}

// Its query, its headers Host and Range.
void TryRequest(test::ByteSource bytes) {
  const cli::BootCaller caller = cli::ParseBootQuery(bytes.Block());
  OB_CHECK(caller.serial.empty() || gateway::CheckNodeSerial(caller.serial).ok());
  const uint64_t file_bytes = bytes.Byte();
  if (const auto range = cli::ParseRange(bytes.Block(), file_bytes))
    OB_CHECK(range->begin <= range->end && range->end <= file_bytes);
  cli::ScriptOptions options{.gateway = "gateway:6668", .append = "console=ttyS0"};
  options.boot_server = cli::HostOfHeader(bytes.Block());
  const cli::BootImage image{.digest = "sha256:" + std::string(64, 'b')};
  const std::string script = cli::NodeScript(image, options, "obn_claim", 60);
  const size_t begin = script.find("initrd=");
  OB_CHECK(begin != std::string::npos);
  const std::string line = script.substr(begin, script.find('\n', begin) - begin);
  const worker::NodeConfig config = ValueOrDie(worker::ParseNodeConfig(Image(), line));
  OB_CHECK(config.boot_server == options.boot_server && config.gateway == options.gateway &&
           config.image == image.digest && config.joins_within_s == 60);
}

// Whoever is on the network may have written it: whom the node believes is the image's to say.
void TryCommandLine(std::string_view line) {
  const auto config = worker::ParseNodeConfig(Image(), line);
  if (!config.ok()) return;
  OB_CHECK(config->fingerprint == "sha256:" + std::string(64, 'a') && config->built_unix_s == 1);
  OB_CHECK(!config->debug && !config->gateway.empty() && config->joins_within_s >= 0);
  for (const std::string& text : {config->gateway, config->claim, config->boot_server})
    for (const char c : text) OB_CHECK(c > ' ' && c <= '~');
}

}  // namespace
}  // namespace outboard

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  using namespace outboard;
  const auto kind = [](Kind of) { return std::string(1, static_cast<char>(of)); };
  // As a server answers: what was asked, with an address, and options in place of the end.
  std::string offer = worker::Encode({.transaction = kTransaction, .mac = kMac});
  offer[0] = 2;
  offer.replace(16, 4, std::string("\x0a\0\x02\x0f", 4));
  offer.resize(240);
  offer += std::string("\x35\1\2\x36\4\x0a\0\2\2\x33\4\0\0\x0e\x10\1\4\xff\xff\xff\0", 21);
  offer += std::string("\3\4\x0a\0\2\2\6\4\x0a\0\2\3\x1a\2\5\xdc\xff", 17);
  OB_CHECK(worker::DecodeDhcp(offer, kTransaction, kMac).ok());
  const std::string request = test::BlockOf("serial=ABC%2d1&uuid=42&mac=52-54-00-01-02-03") + "d" +
                              test::BlockOf("bytes=10-") + test::BlockOf("[fd00::1]:6669");
  test::WriteSeeds(*argc, *argv,
                   {kind(kDhcp) + offer, kind(kRequest) + request,
                    kind(kCommandLine) + "outboard.gateway=a:1 outboard.joins_within=60"});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % outboard::kKinds) {
    case outboard::kDhcp: outboard::TryDhcp(rest); break;
    case outboard::kRequest: outboard::TryRequest(outboard::test::ByteSource(rest)); break;
    default: outboard::TryCommandLine(rest);
  }
  return 0;
}
