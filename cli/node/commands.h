// `outboard node`, `outboard image` and `outboard boot`: their options, and what runs them.
// Errors go to stderr; the exit code says whether there was one.
#pragma once

#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/common.h"

namespace outboard::cli {

struct NodeFlags {  // of every verb of `outboard node`
  std::string data;
  std::string serial;
  std::string key;    // approve: the first digits
  std::string endorsement_key;  // expect: of its TPM
  bool boot = false;  // claim: by the boot server
  bool json = false;
  std::string why;         // quarantine, reboot
  bool lift = false;       // quarantine
  std::string power_hook;  // reboot: by this program, of a machine that does not answer
};

// Each returns the exit code.
int RunNodeClaim(const NodeFlags& flags);
int RunNodeExpect(const NodeFlags& flags);
int RunNodeApprove(const NodeFlags& flags);
int RunNodeList(const NodeFlags& flags);
int RunNodeRemove(const NodeFlags& flags);
int RunNodeLogs(const NodeFlags& flags);
int RunNodeShow(const NodeFlags& flags);
int RunNodeDrain(const NodeFlags& flags);
int RunNodeReboot(const NodeFlags& flags);
int RunNodeQuarantine(const NodeFlags& flags);

struct ImageFlags {  // of every verb of `outboard image`
  std::string data;
  std::string folder, digest, signer;  // add
  bool is_driver = false;              // add: what deploy/image/driver wrote
  std::string image;                   // use, rollout: "sha256:...", or its first digits
  std::string nodes = "*";             // use, rollout: a pattern of serial numbers
  int share_percent = 10;              // rollout
  int within_s = 300;                  // rollout
  bool json = false;                   // ls
};

int RunImageAdd(const ImageFlags& flags);
int RunImageList(const ImageFlags& flags);
int RunImageUse(const ImageFlags& flags);
int RunImageRollout(const ImageFlags& flags);
int RunImageRollback(const ImageFlags& flags);

struct BootFlags {  // of `outboard boot`
  std::string data;
  std::string listen = "127.0.0.1:6669";
  std::string https_listen;        // empty: no HTTPS
  std::string tls_certificate_file, tls_key_file;  // empty: of the gateway's CA
  std::vector<std::string> tls_names;              // of that certificate, besides
  std::string image;               // a folder that deploy/image/build wrote; empty: those added
  std::string efi;                 // a file of deploy/image/sign; empty: none
  std::string gateway;             // where nodes join; empty: as the image says
  std::string append;              // to the kernel's command line
  std::vector<std::string> files;  // served by digest besides
  int life_fd = -1;
  ReadyOptions ready;
};

// Runs until SIGINT or SIGTERM; returns the exit code.
int RunBoot(const BootFlags& flags);

// Declares `outboard node`, `image` and `boot`.
void AddNodeCommands(Arguments& app);

}  // namespace outboard::cli
