// Takes the place of boot_server.cc in builds without Boost (OUTBOARD_VIZ).
#include "cli/node/boot_server.h"

namespace outboard::cli {

absl::StatusOr<std::unique_ptr<BootServer>> BootServer::Start(BootServerOptions) {
  return absl::UnimplementedError(
      "this build has no `outboard boot`: run scripts/setup, which builds everything");
}

}  // namespace outboard::cli
