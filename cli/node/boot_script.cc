#include "cli/node/boot_script.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "gateway/base/node_serial.h"
#include "worker/init/node_facts.h"

namespace outboard::cli {
namespace {

constexpr size_t kReadBytes = 1 << 20;
constexpr size_t kSumsBytesMax = 4096;
constexpr size_t kWordsBytesMax = 512;
constexpr char kSums[] = "SHA256SUMS";

// "%41" as "A"; other bytes as they are.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits = text.substr(i + 1, 2);
    const bool is_escape = text[i] == '%' && digits.size() == 2 &&
                           std::all_of(digits.begin(), digits.end(), [](char c) {
                             return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                           });
    if (!is_escape) {
      out.push_back(text[i]);
      continue;
    }
    out += absl::HexStringToBytes(absl::string_view(digits.data(), digits.size()));
    i += 2;
  }
  return out;
}

bool IsNumber(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

}  // namespace

absl::StatusOr<BootFile> ReadBootFile(const std::string& path, const std::stop_token& stop) {
  std::error_code error;
  std::ifstream in(path, std::ios::binary);
  if (!in || !std::filesystem::is_regular_file(path, error))
    return absl::InvalidArgumentError(absl::StrCat(path, " is no file that can be read"));
  Sha256Hasher hash;
  BootFile file{.path = path, .digest = {}, .bytes = 0};
  std::string buffer(kReadBytes, '\0');
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), in.gcount() > 0) {
    hash.Update(std::string_view(buffer).substr(0, static_cast<size_t>(in.gcount())));
    file.bytes += static_cast<uint64_t>(in.gcount());
    if (stop.stop_requested()) return absl::CancelledError(absl::StrCat(path, " is read no more"));
  }
  const Sha256Digest digest = hash.Finish();
  file.digest = ToHex({reinterpret_cast<const char*>(digest.data()), digest.size()});
  return file;
}

std::string ListedDigest(const std::string& sums, const std::string& name) {
  std::istringstream lines(sums);
  for (std::string digest, named; lines >> digest >> named;)
    if (named == name) return digest;
  return "";
}

absl::StatusOr<BootFile> ReadListedFile(const std::string& folder, const char* name,
                                        const std::string& sums) {
  OB_ASSIGN_OR_RETURN(const BootFile file, ReadBootFile(folder + "/" + name));
  const std::string digest = ListedDigest(sums, name);
  if (digest.empty())
    return absl::InvalidArgumentError(absl::StrCat(folder, "/", kSums, " does not name ", name));
  if (digest == file.digest) return file;
  return absl::InvalidArgumentError(
      absl::StrCat(folder, "/", name, ": ", kSums, " expects ", digest, ", found ", file.digest));
}

absl::StatusOr<BootImage> ReadBootImage(const std::string& folder) {
  const std::string sums = worker::FileText(folder + "/" + kSums, kSumsBytesMax);
  if (sums.empty())
    return absl::InvalidArgumentError(absl::StrCat(folder, " has no ", kSums,
                                                   ": --image is a folder that deploy/image/build "
                                                   "wrote"));
  BootImage image;
  OB_ASSIGN_OR_RETURN(image.kernel, ReadListedFile(folder, "vmlinuz", sums));
  OB_ASSIGN_OR_RETURN(image.initramfs, ReadListedFile(folder, "initramfs", sums));
  OB_ASSIGN_OR_RETURN(const BootFile list, ReadBootFile(folder + "/" + kSums));
  image.digest = "sha256:" + list.digest;
  return image;
}

BootCaller ParseBootQuery(std::string_view query) {
  BootCaller caller;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = pair.substr(0, equals);
    // As the node itself will write it.
    const std::string value = worker::CleanSerial(Unescaped(pair.substr(equals + 1)));
    if (name == "serial") caller.serial = value;
    if (name == "uuid") caller.uuid = value;
    if (name == "mac") caller.mac = value;
  }
  // A machine without a serial number goes by what worker/init/node_facts.cc takes instead.
  if (caller.serial.empty()) caller.serial = caller.uuid;
  if (caller.serial.empty() && !caller.mac.empty()) caller.serial = "mac-" + caller.mac;
  if (!gateway::CheckNodeSerial(caller.serial).ok()) caller.serial.clear();
  return caller;
}

std::string FirstScript() {
  return "#!ipxe\n"
         "chain "
         "node.ipxe?serial=${serial:uristring}&uuid=${uuid:uristring}&mac=${netX/mac:hexhyp}\n";
}

// As in deploy/image/sign. The kernel's tests of its own ciphers are more than half of its start,
// and nothing of ours uses them: TLS is OpenSSL's, and a module whose signature comes out wrong is
// not loaded.
constexpr char kKernelWords[] = "quiet panic=10 cryptomgr.notests";

std::string NodeScript(const BootImage& image, const ScriptOptions& options,
                       const std::string& claim, int64_t joins_within_s) {
  std::string line =
      absl::StrCat("initrd=outboard.img ", kKernelWords, " outboard.image=", image.digest);
  if (!options.gateway.empty()) absl::StrAppend(&line, " outboard.gateway=", options.gateway);
  if (!options.boot_server.empty())
    absl::StrAppend(&line, " outboard.boot=", options.boot_server);
  if (!claim.empty()) absl::StrAppend(&line, " outboard.claim=", claim);
  if (joins_within_s > 0) absl::StrAppend(&line, " outboard.joins_within=", joins_within_s);
  if (!options.append.empty()) absl::StrAppend(&line, " ", options.append);
  return absl::StrCat("#!ipxe\necho Outboard image ", image.digest, "\nkernel sha256/",
                      image.kernel.digest, " ", line, "\ninitrd --name outboard.img sha256/",
                      image.initramfs.digest, "\nboot\n");
}

std::string HostOfHeader(std::string_view header) {
  // With a port it is a value that a node takes of its command line (worker/init/node_config.cc).
  constexpr size_t kHostBytesMax = 253;
  const bool good = !header.empty() && header.size() <= kHostBytesMax &&
                    std::all_of(header.begin(), header.end(), [](char c) {
                      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
                             c == '-' || c == '_' || c == ':' || c == '[' || c == ']';
                    });
  if (!good) return "";
  const size_t colon = header.rfind(':');
  const bool has_port = colon != std::string_view::npos && IsNumber(header.substr(colon + 1)) &&
                        (header.front() != '[' || header[colon - 1] == ']');
  return has_port ? std::string(header) : std::string(header) + ":80";
}

absl::Status CheckWords(const std::string& flag, const std::string& text) {
  const bool good =
      text.size() <= kWordsBytesMax && std::all_of(text.begin(), text.end(), [](char c) {
        return c >= ' ' && c <= '~' && c != '$' && c != '{' && c != '}' && c != '\\' && c != '"';
      });
  if (!good)
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": one line of at most ", kWordsBytesMax,
        " printable characters, without $ { } \\ and quotes, which iPXE reads as its own"));
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  if (std::any_of(words.begin(), words.end(), [](absl::string_view word) {
        return absl::StartsWith(word, "outboard.") || absl::StartsWith(word, "rdinit=");
      }))
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": words that begin with outboard. or rdinit= are written by the boot server"));
  return absl::OkStatus();
}

std::optional<ByteRange> ParseRange(std::string_view header, uint64_t bytes) {
  constexpr std::string_view kUnit = "bytes=";
  if (!header.starts_with(kUnit)) return std::nullopt;
  header.remove_prefix(kUnit.size());
  const size_t dash = header.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string first(header.substr(0, dash)), last(header.substr(dash + 1));
  uint64_t begin = 0, end = 0;
  if (first.empty()) {  // the last bytes
    if (!IsNumber(last) || !absl::SimpleAtoi(last, &end)) return std::nullopt;
    return ByteRange{bytes - std::min(end, bytes), bytes};
  }
  if (!IsNumber(first) || !absl::SimpleAtoi(first, &begin)) return std::nullopt;
  if (last.empty()) return ByteRange{std::min(begin, bytes), bytes};
  if (!IsNumber(last) || !absl::SimpleAtoi(last, &end) || end < begin) return std::nullopt;
  if (begin >= bytes) return ByteRange{bytes, bytes};
  return ByteRange{begin, std::min(end, bytes - 1) + 1};
}

}  // namespace outboard::cli
