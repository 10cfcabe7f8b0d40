#include "gateway/server/fleet_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "gateway/base/clock.h"
#include "gateway/ledger/ids.h"
#include "wire/tls/private_file.h"

namespace outboard::gateway {
namespace {

constexpr size_t kFileBytesMax = 4096;

absl::Status CannotWrite(const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
}

// Written under another name and linked: nobody reads half a secret, and of two that make one at
// the same time the first counts.
absl::Status Create(const std::string& path) {
  const std::string secret = Draw<SessionId>().Hex() + Draw<SessionId>().Hex() + "\n";
  std::string temporary = path + ".XXXXXX";
  const int file = mkostemp(temporary.data(), O_CLOEXEC);  // mode 0600
  if (file < 0) return CannotWrite(path);
  const bool written =
      write(file, secret.data(), secret.size()) == static_cast<ssize_t>(secret.size()) &&
      fsync(file) == 0 && (link(temporary.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const absl::Status status = written ? absl::OkStatus() : CannotWrite(path);
  close(file);
  unlink(temporary.c_str());
  return status;
}

}  // namespace

std::string FleetSecretPath(const std::string& data_folder) {
  return data_folder + "/fleet.secret";
}

absl::StatusOr<std::string> ReadFleetSecret(const std::string& path, std::string* fingerprint) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    const std::string why = absl::StrCat("cannot read ", path, ": ", strerror(errno));
    if (errno == ENOENT) return absl::NotFoundError(why);
    return absl::PermissionDeniedError(why);
  }
  struct stat info {};
  const bool is_private = fstat(file, &info) == 0 &&
                          (!S_ISREG(info.st_mode) || !tls::IsOpenToOthers(path, info.st_mode));
  std::array<char, kFileBytesMax> bytes;
  const ssize_t count = read(file, bytes.data(), bytes.size());
  close(file);
  if (!is_private)
    return absl::FailedPreconditionError(
        absl::StrCat(path, " holds a secret that other users can read: chmod 600 ", path,
                     ", and replace the secret if it may be known"));
  std::istringstream words(std::string(bytes.data(), count < 0 ? 0 : static_cast<size_t>(count)));
  std::string text, second;
  words >> text >> second;
  if (fingerprint != nullptr) *fingerprint = second;
  const bool is_word = std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (text.empty() || !is_word || static_cast<size_t>(count) == bytes.size())
    return absl::FailedPreconditionError(
        absl::StrCat(path, " holds no secret: a word of printable characters"));
  return text;
}

absl::StatusOr<std::string> EnsureFleetSecret(const std::string& data_folder) {
  const std::string path = FleetSecretPath(data_folder);
  absl::StatusOr<std::string> secret = ReadFleetSecret(path);
  if (!absl::IsNotFound(secret.status())) return secret;
  if (absl::Status status = Create(path); !status.ok()) return status;
  return ReadFleetSecret(path);
}

absl::Status AddFleetFingerprint(const std::string& data_folder, const std::string& secret,
                                 const std::string& fingerprint) {
  const std::string path = FleetSecretPath(data_folder);
  std::string known;
  const absl::StatusOr<std::string> in_file = ReadFleetSecret(path, &known);
  if (!in_file.ok() || *in_file != secret || known == fingerprint) return absl::OkStatus();
  return tls::WriteFile(path, absl::StrCat(secret, "\n", fingerprint, "\n"), /*is_secret=*/true,
                        tls::Replace::kYes);
}

}  // namespace outboard::gateway
