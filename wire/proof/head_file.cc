#include "wire/proof/head_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/hex.h"
#include "wire/proof/signed_head.h"

namespace outboard::signing {
namespace {

constexpr std::string_view kLineTag = "1";
constexpr size_t kFields = 10;
constexpr size_t kTargetBytesMax = 300;

// A file that is open and locked.
class Locked {
 public:
  Locked(const std::string& path, int flags, int lock) {
    file_ = open(path.c_str(), flags | O_CLOEXEC, 0600);
    if (file_ >= 0 && flock(file_, lock) != 0) {
      close(file_);
      file_ = -1;
    }
  }
  ~Locked() {
    if (file_ >= 0) close(file_);
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  bool ok() const { return file_ >= 0; }

  // Nothing: it cannot be read. What is beyond the limit is not ours.
  std::optional<std::string> ReadAll() const {
    std::string text(2 * kHeadFileBytesMax, '\0');
    size_t have = 0;
    while (have < text.size()) {
      const ssize_t count = pread(file_, text.data() + have, text.size() - have,
                                  static_cast<off_t>(have));
      if (count < 0) return std::nullopt;
      if (count == 0) break;
      have += static_cast<size_t>(count);
    }
    text.resize(have);
    return text;
  }
  bool WriteAt(std::string_view text, size_t at) const {
    return pwrite(file_, text.data(), text.size(), static_cast<off_t>(at)) ==
               static_cast<ssize_t>(text.size()) &&
           ftruncate(file_, static_cast<off_t>(at + text.size())) == 0;
  }
  size_t size() const { return static_cast<size_t>(std::max<off_t>(0, lseek(file_, 0, SEEK_END))); }

 private:
  int file_ = -1;
};

absl::Status Failed(const char* what) {
  return absl::UnavailableError(
      absl::StrCat("cannot ", what, " the file of seen ledger heads: ", strerror(errno)));
}

std::string LineOf(const SeenHead& seen) {
  const proto::LedgerHead& head = seen.head;
  return absl::StrCat(std::string(kLineTag), " ", seen.target, " ", head.account(), " ",
                      head.entries(), " ", ToHex(head.account_hash()), " ", head.ledger_entries(),
                      " ", ToHex(head.ledger_hash()), " ", head.at_unix_ms(), " ",
                      absl::StrCat(ToHex(head.key()), " ", ToHex(head.signature()), "\n"));
}

bool BytesFrom(const std::string& hex, size_t bytes, std::string* out) {
  out->assign(bytes, '\0');
  return FromHex(hex, {reinterpret_cast<uint8_t*>(out->data()), bytes});
}

std::optional<SeenHead> HeadFrom(const std::string& line) {
  const std::vector<std::string> fields = absl::StrSplit(line, ' ');
  if (fields.size() != kFields || fields[0] != kLineTag) return std::nullopt;
  SeenHead seen{fields[1], {}};
  proto::LedgerHead& head = seen.head;
  int64_t account = 0, entries = 0, ledger_entries = 0, at = 0;
  if (!absl::SimpleAtoi(fields[2], &account) || !absl::SimpleAtoi(fields[3], &entries) ||
      !BytesFrom(fields[4], kHashBytes, head.mutable_account_hash()) ||
      !absl::SimpleAtoi(fields[5], &ledger_entries) ||
      !BytesFrom(fields[6], kHashBytes, head.mutable_ledger_hash()) ||
      !absl::SimpleAtoi(fields[7], &at) ||
      !BytesFrom(fields[8], kPublicKeyBytes, head.mutable_key()) ||
      !BytesFrom(fields[9], kSignatureBytes, head.mutable_signature()))
    return std::nullopt;
  head.set_account(account);
  head.set_entries(entries);
  head.set_ledger_entries(ledger_entries);
  head.set_at_unix_ms(at);
  return seen;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::string Thinned(const std::string& text) {
  const std::vector<std::string> lines = LinesOf(text);
  std::string kept;
  for (size_t i = 0; i < lines.size(); ++i)
    if (i % 2 == 0 || i >= lines.size() / 4 * 3) absl::StrAppend(&kept, lines[i], "\n");
  return kept;
}

}  // namespace

absl::Status HeadFile::Add(const SeenHead& seen) const {
  if (seen.target.empty() || seen.target.size() > kTargetBytesMax ||
      seen.target.find_first_of(" \n\r\t") != std::string::npos)
    return absl::InvalidArgumentError("the target of a ledger head is no address");
  if (absl::Status status = CheckHead(seen.head); !status.ok()) return status;
  std::error_code ignored;  // opening the file then says what is wrong
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  const Locked file(path_, O_RDWR | O_CREAT, LOCK_EX);
  if (!file.ok()) return Failed("open");
  size_t size = file.size();
  const std::string line = LineOf(seen);
  if (size + line.size() > kHeadFileBytesMax) {
    const std::optional<std::string> text = file.ReadAll();
    if (!text.has_value()) return Failed("read");
    std::string kept = Thinned(*text);
    if (kept.size() + line.size() > kHeadFileBytesMax) kept.clear();  // not what we wrote
    if (!file.WriteAt(kept + line, 0)) return Failed("write");
    return absl::OkStatus();
  }
  if (!file.WriteAt(line, size)) return Failed("write");
  return absl::OkStatus();
}

absl::StatusOr<HeadFile::Heads> HeadFile::Read() const {
  Heads heads;
  const Locked file(path_, O_RDONLY, LOCK_SH);
  if (!file.ok()) {
    if (errno == ENOENT) return heads;
    return Failed("open");
  }
  const std::optional<std::string> text = file.ReadAll();
  if (!text.has_value()) return Failed("read");
  for (const std::string& line : LinesOf(*text)) {
    std::optional<SeenHead> seen = HeadFrom(line);
    if (seen.has_value())
      heads.heads.push_back(*std::move(seen));
    else
      ++heads.damaged_lines;
  }
  return heads;
}

std::string HeadFilePath() {
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  if (const std::string path = value("CLOUD_HEADS"); !path.empty()) return path == "0" ? "" : path;
  if (const std::string data = value("OUTBOARD_DATA"); !data.empty()) return data + "/seen-heads";
  if (const std::string data = value("XDG_DATA_HOME"); !data.empty())
    return absl::StrCat(data, "/outboard/seen-heads");
  const std::string home = value("HOME");
  return home.empty() ? "" : absl::StrCat(home, "/.local/share/outboard/seen-heads");
}

}  // namespace outboard::signing
