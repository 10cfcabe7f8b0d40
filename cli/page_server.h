// Pages for a browser on this machine: HTTP/1.1 on loopback, GET and HEAD of a fixed list of paths.
//
// Only requests whose Host is this machine are answered (others get 421), so that a name elsewhere
// that resolves to 127.0.0.1 cannot read along. A connection may idle for ten seconds, and there
// are at most kConnectionsMax of them; a request has no body and a header of at most 8 KB.
//
// Threads: Start makes one, which runs all connections and the resources' functions; the destructor
// ends it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::cli {

inline constexpr int kConnectionsMax = 64;

struct Resource {
  std::string path;  // "/", "/rewrites"
  std::string type;  // of its content
  // Called for each request. An error is answered with 500 and its message.
  std::function<absl::StatusOr<std::string>()> content;
};

class PageServer {
 public:
  // On 127.0.0.1:port; 0 takes a free one.
  // Errors: UNAVAILABLE  the port is taken
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(int port,
                                                           std::vector<Resource> resources);
  virtual ~PageServer() = default;
  virtual int port() const = 0;
};

}  // namespace outboard::cli
