// `outboard node` and `outboard boot`: their options, and what runs them.
// Errors go to stderr; the exit code says whether there was one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/common.h"

namespace outboard::cli {

struct NodeFlags {  // of every verb of `outboard node`
  std::string data;
  std::string serial;
  std::string key;    // approve: the first digits
  bool boot = false;  // claim: by the boot server
  bool json = false;
};

// Each returns the exit code.
int RunNodeClaim(const NodeFlags& flags);
int RunNodeExpect(const NodeFlags& flags);
int RunNodeApprove(const NodeFlags& flags);
int RunNodeList(const NodeFlags& flags);
int RunNodeRemove(const NodeFlags& flags);
int RunNodeLogs(const NodeFlags& flags);

struct BootFlags {  // of `outboard boot`
  std::string data;
  std::string listen = "127.0.0.1:6669";
  std::string image;               // a folder that deploy/image/build wrote
  std::string gateway;             // where nodes join; empty: as the image says
  std::string append;              // to the kernel's command line
  std::vector<std::string> files;  // served by digest besides
  int life_fd = -1;
  ReadyOptions ready;
};

// Runs until SIGINT or SIGTERM; returns the exit code.
int RunBoot(const BootFlags& flags);

class NodeCommands {  // on the command line: declares both, and runs the one that is given
 public:
  explicit NodeCommands(Arguments& app);
  ~NodeCommands();
  bool Given() const;
  // Requires Given. Returns the exit code.
  int Run();

 private:
  struct Declared;
  NodeFlags node_;
  BootFlags boot_;
  std::unique_ptr<Declared> declared_;
};

}  // namespace outboard::cli
