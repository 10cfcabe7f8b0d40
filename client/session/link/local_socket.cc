#include "client/session/link/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"

namespace outboard::session {
namespace {

// The users that listen at `port` on any address of this machine (proc(5), /proc/net/tcp).
std::set<uid_t> ListenersAt(int port) {
  constexpr char kListening[] = "0A";
  std::set<uid_t> users;
  for (const char* const table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // the headings
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmits;
      uid_t user = 0;
      if (!(fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user))
        continue;
      const size_t colon = local.rfind(':');
      if (state == kListening && colon != std::string::npos &&
          std::strtol(local.c_str() + colon + 1, nullptr, 16) == port)
        users.insert(user);
    }
  }
  return users;
}

// The user at the other end of the abstract socket `name`.
std::optional<uid_t> OwnerOf(const std::string& name) {
  sockaddr_un address{};
  if (name.size() + 1 > sizeof address.sun_path) return std::nullopt;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return std::nullopt;
  std::optional<uid_t> owner;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
    owner = peer.uid;
  close(fd);
  return owner;
}

}  // namespace

std::optional<std::string> LocalSocketOf(const std::string& target) {
  const std::optional<HostPort> place = SplitHostPort(target);
  if (!place.has_value()) return std::nullopt;
  const bool v4 = place->host == "localhost" || place->host == "127.0.0.1";
  if (!v4 && place->host != "::1") return std::nullopt;
  // As the gateway may have been told to listen.
  const char* const v4_hosts[] = {"127.0.0.1", "localhost", "0.0.0.0"};
  const char* const v6_hosts[] = {"[::1]", "localhost", "[::]"};
  for (const char* const listening : v4 ? v4_hosts : v6_hosts) {
    const std::string name = absl::StrCat("outboard-", listening, ":", place->port);
    const std::optional<uid_t> owner = OwnerOf(name);
    if (owner && ListenersAt(place->port) == std::set<uid_t>{*owner})
      return absl::StrCat("unix-abstract:", name);
  }
  return std::nullopt;
}

}  // namespace outboard::session
