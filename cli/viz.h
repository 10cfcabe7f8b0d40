// `outboard viz`: a page that shows what rules did to each kernel, from a file that VIZ=1 wrote
// (docs/viz.md).
#pragma once

#include <string>
#include <vector>

#include "cli/common.h"
#include "cli/page_server.h"

namespace outboard::cli {

struct VizFlags {
  std::string file;  // or a folder, whose newest file is shown; empty: the folder of VIZ=1
  int port = 0;      // 0 takes a free one
  int life_fd = -1;
  ReadyOptions ready;
};

// Until SIGINT or SIGTERM; returns the exit code.
int RunViz(const VizFlags& flags);

// The page at "/" and the file, as it is when it is asked for, at "/rewrites".
std::vector<Resource> VizResources(const std::string& file);

}  // namespace outboard::cli
