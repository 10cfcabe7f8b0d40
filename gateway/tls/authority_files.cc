#include "gateway/tls/authority_files.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/printable.h"

namespace outboard::gateway {
namespace {

constexpr size_t kWorkerNameShownMax = 60;
// Of "workers": a serial number of 40 digits and a key's of 32, a time of 20 characters, the name.
// The others are shorter.
constexpr size_t kLineBytesMax = 192;
constexpr size_t kRevokedTidiedAt = kRecordLinesMax / 2;
constexpr size_t kFileBytesMax = kRecordLinesMax * kLineBytesMax;

std::string PathIn(const std::string& data_folder, const char* name) {
  return absl::StrCat(TlsFolder(data_folder), "/", name);
}

// None where there is no such file. Whatever else keeps it from being read is an error: a list of
// revoked certificates that is empty by mistake lets them all in.
absl::StatusOr<std::vector<std::string>> LinesOf(const std::string& path) {
  std::vector<std::string> lines;
  const auto text = tls::ReadFile(path, /*is_secret=*/false, kFileBytesMax);
  if (absl::IsNotFound(text.status())) return lines;
  if (!text.ok()) return text.status();
  std::istringstream stream(*text);
  for (std::string line; std::getline(stream, line);)
    if (!line.empty()) lines.push_back(line);
  return lines;
}

// While it lives, no other process changes "workers" or "revoked": each is read, and then replaced.
class UpdateLock {
 public:
  static absl::StatusOr<UpdateLock> Take(const std::string& data_folder) {
    OB_RETURN_IF_ERROR(tls::EnsurePrivateFolder(TlsFolder(data_folder)));
    const std::string path = PathIn(data_folder, "lock");
    UpdateLock lock;
    lock.file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int locked = lock.file_ < 0 ? -1 : flock(lock.file_, LOCK_EX);
    while (lock.file_ >= 0 && locked != 0 && errno == EINTR) locked = flock(lock.file_, LOCK_EX);
    if (locked == 0) return lock;
    return absl::UnavailableError(absl::StrCat("cannot lock ", path, ": ", strerror(errno)));
  }
  UpdateLock(UpdateLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  UpdateLock& operator=(UpdateLock&&) = delete;
  ~UpdateLock() {
    if (file_ >= 0) close(file_);
  }

 private:
  UpdateLock() = default;
  int file_ = -1;
};

std::string NewAuthorityName() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return absl::StrCat("Outboard CA of ", host[0] != 0 ? host : "this machine");
}

absl::StatusOr<tls::Authority> MakeAuthority(const std::string& data_folder, tls::Replace replace) {
  OB_RETURN_IF_ERROR(tls::EnsurePrivateFolder(TlsFolder(data_folder)));
  OB_ASSIGN_OR_RETURN(tls::Authority made, tls::Authority::Generate(NewAuthorityName()));
  OB_RETURN_IF_ERROR(tls::WriteFile(PathIn(data_folder, "ca-key.pem"), made.key_and_chain().ToPem(),
                                    /*is_secret=*/true, replace));
  OB_RETURN_IF_ERROR(tls::WriteFile(PathIn(data_folder, "ca.pem"), made.certificate().ToPem(),
                                    /*is_secret=*/false, tls::Replace::kYes));
  return made;
}

}  // namespace

std::string TlsFolder(const std::string& data_folder) { return data_folder + "/tls"; }

absl::StatusOr<tls::Authority> ReadAuthority(const std::string& data_folder) {
  const std::string path = PathIn(data_folder, "ca-key.pem");
  OB_ASSIGN_OR_RETURN(const std::string pem, tls::ReadFile(path, /*is_secret=*/true));
  return tls::Authority::Parse(path, pem, pem);
}

absl::StatusOr<tls::Authority> EnsureAuthority(const std::string& data_folder) {
  auto authority = ReadAuthority(data_folder);
  if (!absl::IsNotFound(authority.status())) return authority;
  authority = MakeAuthority(data_folder, tls::Replace::kNo);
  // Another process was faster.
  return absl::IsAlreadyExists(authority.status()) ? ReadAuthority(data_folder) : authority;
}

absl::StatusOr<tls::Authority> ReplaceAuthority(const std::string& data_folder) {
  return MakeAuthority(data_folder, tls::Replace::kYes);
}

std::string CanonicalName(const std::string& name) {
  in6_addr address;
  char text[INET6_ADDRSTRLEN] = "";
  for (const int family : {AF_INET, AF_INET6})
    if (inet_pton(family, name.c_str(), &address) == 1 &&
        inet_ntop(family, &address, text, sizeof text) != nullptr)
      return text;
  return name;
}

std::vector<std::string> NamesOfEveryMachine() { return {"localhost", "127.0.0.1", "::1"}; }

std::vector<std::string> NamesOfThisMachine(const std::vector<std::string>& more) {
  std::vector<std::string> names = NamesOfEveryMachine();
  const auto add = [&names](const std::string& name) {
    if (names.size() < tls::kNamesMax && tls::CheckCertificateName(name).ok() &&
        std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  };
  for (const std::string& name : more) add(CanonicalName(name));
  char host[256] = "";
  if (gethostname(host, sizeof host - 1) == 0) add(host);
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return names;
  for (const ifaddrs* at = interfaces; at != nullptr; at = at->ifa_next) {
    char text[INET6_ADDRSTRLEN] = "";
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    if (at->ifa_addr->sa_family == AF_INET) {
      const auto* const v4 = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
      inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    } else if (at->ifa_addr->sa_family == AF_INET6) {
      const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
      // One of a link says nothing without its interface.
      if (!IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
        inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    }
    if (text[0] != 0) add(text);
  }
  freeifaddrs(interfaces);
  return names;
}

absl::Status IssueServerFile(const tls::Authority& authority, const std::string& path,
                             const std::vector<std::string>& names, int64_t lifetime_s,
                             tls::Replace replace) {
  OB_ASSIGN_OR_RETURN(const tls::KeyAndChain issued,
                      authority.Issue({.common_name = names.empty() ? "outboard" : names.front(),
                                       .names = names,
                                       .lifetime_s = lifetime_s}));
  return tls::WriteFile(path, issued.ToPem(), /*is_secret=*/true, replace);
}

absl::StatusOr<std::vector<IssuedCertificate>> ReadIssued(const std::string& data_folder) {
  std::vector<IssuedCertificate> all;
  OB_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                      LinesOf(PathIn(data_folder, "workers")));
  for (const std::string& line : lines) {
    std::istringstream words(line);
    IssuedCertificate one;
    std::string until;
    if (!(words >> one.serial >> until) ||
        !absl::ParseTime(absl::RFC3339_sec, until, &one.not_after, nullptr))
      continue;
    if (const size_t at = one.serial.find('/'); at != std::string::npos) {
      one.key_id = one.serial.substr(at + 1);
      one.serial.resize(at);
    }
    std::getline(words >> std::ws, one.name);
    all.push_back(std::move(one));
  }
  return all;
}

absl::Status RecordIssued(const std::string& data_folder, const IssuedCertificate& issued) {
  OB_ASSIGN_OR_RETURN(const UpdateLock lock, UpdateLock::Take(data_folder));
  OB_ASSIGN_OR_RETURN(std::vector<IssuedCertificate> all, ReadIssued(data_folder));
  const absl::Time now = absl::Now();
  std::erase_if(all, [now](const IssuedCertificate& one) { return one.not_after < now; });
  if (all.size() >= kRecordLinesMax) all.erase(all.begin());
  all.push_back(issued);
  std::string text;
  for (IssuedCertificate& one : all) {
    absl::StrAppend(&text, one.serial, one.key_id.empty() ? "" : "/", one.key_id, " ",
                    absl::FormatTime(absl::RFC3339_sec, one.not_after, absl::UTCTimeZone()), " ",
                    Printable(one.name, kWorkerNameShownMax), "\n");
  }
  return tls::WriteFile(PathIn(data_folder, "workers"), text, /*is_secret=*/true,
                        tls::Replace::kYes);
}

absl::StatusOr<std::vector<std::string>> ReadRevoked(const std::string& data_folder) {
  return LinesOf(PathIn(data_folder, "revoked"));
}

absl::Status Revoke(const std::string& data_folder, const std::string& serial) {
  OB_ASSIGN_OR_RETURN(const UpdateLock lock, UpdateLock::Take(data_folder));
  OB_ASSIGN_OR_RETURN(std::vector<std::string> lines, ReadRevoked(data_folder));
  if (std::find(lines.begin(), lines.end(), serial) != lines.end()) return absl::OkStatus();
  // Nodes that boot again leave one each time. What has expired needs no line any more; while the
  // list of issued ones is not full it has all that are valid.
  if (lines.size() >= kRevokedTidiedAt) {
    OB_ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> issued, ReadIssued(data_folder));
    std::set<std::string> valid;
    for (const IssuedCertificate& one : issued)
      if (one.not_after > absl::Now()) valid.insert(one.serial);
    if (issued.size() < kRecordLinesMax)
      std::erase_if(lines, [&](const std::string& line) { return !valid.contains(line); });
  }
  if (lines.size() >= kRecordLinesMax)
    return absl::FailedPreconditionError(absl::StrCat(
        PathIn(data_folder, "revoked"), " has ", lines.size(),
        " lines, which is the limit: take those away whose certificates have expired"));
  lines.push_back(serial);
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
  return tls::WriteFile(PathIn(data_folder, "revoked"), text, /*is_secret=*/false,
                        tls::Replace::kYes);
}

absl::StatusOr<std::string> FingerprintForClients(const std::string& data_folder) {
  OB_ASSIGN_OR_RETURN(const std::vector<std::string> lines,
                      LinesOf(PathIn(data_folder, "fingerprint")));
  if (!lines.empty()) return lines.front() == "plain" ? "" : lines.front();
  OB_ASSIGN_OR_RETURN(const tls::Authority authority, EnsureAuthority(data_folder));
  return authority.certificate().fingerprint().ToString();
}

absl::Status WriteFingerprint(const std::string& data_folder, const std::string& fingerprint) {
  OB_RETURN_IF_ERROR(tls::EnsurePrivateFolder(TlsFolder(data_folder)));
  return tls::WriteFile(PathIn(data_folder, "fingerprint"),
                        (fingerprint.empty() ? "plain" : fingerprint) + "\n",
                        /*is_secret=*/false, tls::Replace::kYes);
}

}  // namespace outboard::gateway
