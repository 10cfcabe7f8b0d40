// `outboard viz`: serves a page that shows the effect of rewrite rules on each kernel, from a file
// written with VIZ=1 (docs/viz.md).
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

// Runs until SIGINT or SIGTERM; returns the exit code.
int RunViz(const VizFlags& flags);

// Returns the page at "/" and the file at "/rewrites"; the file is read at each request.
std::vector<Resource> VizResources(const std::string& file);

}  // namespace outboard::cli
