// Serves pages to a browser on this machine: HTTP/1.1 on loopback, GET and HEAD of a fixed list of
// paths.
//
// Answers only requests whose Host is this machine (others get 421), so that a foreign domain name
// that resolves to 127.0.0.1 cannot read the pages. A connection may idle for ten seconds, and
// there are at most kConnectionsMax of them; a request has no body and a header of at most 8 KB.
//
// Threads: Start creates one, which runs all connections and the resources' functions; the
// destructor ends it.
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
  std::string type;  // content type
  // Called for each request. An error is answered with status 500 and its message.
  std::function<absl::StatusOr<std::string>()> content;
};

class PageServer {
 public:
  // Listens on 127.0.0.1:port; 0 takes a free port.
  // Errors: UNAVAILABLE  the port is taken
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(int port,
                                                           std::vector<Resource> resources);
  virtual ~PageServer() = default;
  virtual int port() const = 0;
};

}  // namespace outboard::cli
