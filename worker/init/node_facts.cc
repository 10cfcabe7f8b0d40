#include "worker/init/node_facts.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/printable.h"

namespace outboard::worker {
namespace {

constexpr size_t kSerialBytesMax = 56;
constexpr size_t kListMax = 16;   // of what the gateway takes 64
constexpr size_t kTextMax = 100;  // likewise 128 bytes
// What makers leave where a serial number belongs.
constexpr std::string_view kNoSerials[] = {"not_specified",
                                           "none",
                                           "to_be_filled_by_o.e.m.",
                                           "default_string",
                                           "system_serial_number",
                                           "0",
                                           "not_applicable",
                                           "unknown",
                                           "123456789"};

std::string Line(const std::string& path) {
  const std::string text = FileText(path, 4096);
  const absl::string_view line = absl::StripAsciiWhitespace(text);
  return Printable({line.data(), line.size()}, kTextMax);
}

std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error))
    names.push_back(it->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Processing accelerators, and displays that compute: PCI classes 0x12 and 0x03.
std::vector<std::string> Accelerators(const std::string& root) {
  std::vector<std::string> ids;
  const std::string folder = root + "/sys/bus/pci/devices/";
  for (const std::string& device : Entries(folder)) {
    const std::string kind = Line(folder + device + "/class");
    if (!kind.starts_with("0x12") && !kind.starts_with("0x03")) continue;
    const std::string vendor = Line(folder + device + "/vendor");
    const std::string product = Line(folder + device + "/device");
    if (vendor.size() > 2 && product.size() > 2 && ids.size() < kListMax)
      ids.push_back(vendor.substr(2) + ":" + product.substr(2));
  }
  return ids;
}

uint64_t MemoryBytes(const std::string& root) {
  const std::string text = FileText(root + "/proc/meminfo", 4096);
  constexpr std::string_view kTotal = "MemTotal:";
  const size_t at = text.find(kTotal);
  if (at == std::string::npos) return 0;
  const size_t from = text.find_first_of("0123456789", at + kTotal.size());
  if (from == std::string::npos) return 0;
  uint64_t kibibytes = 0;
  const size_t end = text.find_first_not_of("0123456789", from);
  return absl::SimpleAtoi(text.substr(from, end - from), &kibibytes) ? kibibytes << 10 : 0;
}

}  // namespace

std::string FileText(const std::string& path, size_t bytes_max) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::string text(bytes_max, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes_max));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::string CleanSerial(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_good =
        absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
    if (out.empty() && !absl::ascii_isalnum(static_cast<unsigned char>(c))) continue;
    if (out.size() < kSerialBytesMax) out.push_back(is_good ? c : '_');
  }
  while (!out.empty() && out.back() == '_') out.pop_back();
  const std::string lower = absl::AsciiStrToLower(out);
  for (const std::string_view none : kNoSerials)
    if (lower == none) return "";
  return out;
}

uint64_t BytesKeptFree(uint64_t memory_bytes, uint64_t now_bytes) {
  const double wanted_kib = 4 * std::sqrt(static_cast<double>(memory_bytes >> 10));
  return std::min(now_bytes, std::max(static_cast<uint64_t>(wanted_kib) << 10, uint64_t{8} << 20));
}

std::vector<std::string> NetworkDevices(const std::string& root) {
  const std::string folder = root + "/sys/class/net/";
  std::vector<std::string> names;
  std::error_code error;
  for (const std::string& name : Entries(folder))
    if (std::filesystem::exists(folder + name + "/device", error)) names.push_back(name);
  return names;
}

proto::NodeFacts ReadNodeFacts(const std::string& root) {
  proto::NodeFacts facts;
  const std::string dmi = root + "/sys/class/dmi/id/";
  facts.set_uuid(absl::AsciiStrToLower(Line(dmi + "product_uuid")));
  for (const std::string& name : NetworkDevices(root))
    if (facts.mac_size() < static_cast<int>(kListMax))
      facts.add_mac(Line(root + "/sys/class/net/" + name + "/address"));
  for (const char* const file : {"product_serial", "board_serial"}) {
    if (facts.serial().empty()) facts.set_serial(CleanSerial(Line(dmi + file)));
  }
  if (facts.serial().empty()) facts.set_serial(CleanSerial(facts.uuid()));
  // As iPXE writes it (cli/node/boot_script.cc).
  if (facts.serial().empty() && facts.mac_size() > 0)
    facts.set_serial(CleanSerial("mac-" + absl::StrReplaceAll(facts.mac(0), {{":", "-"}})));
  facts.set_cores(std::thread::hardware_concurrency());
  facts.set_memory_bytes(MemoryBytes(root));
  for (std::string& id : Accelerators(root)) facts.add_devices(std::move(id));
  utsname name{};
  if (uname(&name) == 0) facts.set_kernel(std::string(name.release).substr(0, kTextMax));
  return facts;
}

}  // namespace outboard::worker
