// Takes the place of page_server.cc in builds without OUTBOARD_VIZ.
#include "cli/viz/page_server.h"

namespace outboard::cli {

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(int, std::vector<Resource>) {
  return absl::UnimplementedError(
      "this build has no `outboard viz`: run scripts/setup, which builds everything");
}

}  // namespace outboard::cli
