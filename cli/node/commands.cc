#include "cli/node/commands.h"

#include <fcntl.h>

namespace outboard::cli {

struct NodeCommands::Declared {
  Command claim, expect, approve, list, remove, logs, boot;
};

NodeCommands::NodeCommands(Arguments& app) {
  constexpr char kDataHelp[] =
      "The gateway's folder (default: $OUTBOARD_DATA, else ~/.local/share/outboard)";
  Command node =
      app.Subcommand("node", "Manage machines that boot over the network (docs/fleet.md)");
  node.RequireSubcommand();
  Command claim = node.Subcommand(
      "claim", "Make a claim with which one machine enrols, once, within 15 minutes; print it");
  claim.Add("--boot", &node_.boot,
            "Print nothing: `outboard boot` gives it to the machine of this serial number, the "
            "next time that it boots");
  Command expect =
      node.Subcommand("expect", "Let in, once, whichever machine says that it has a serial number");
  for (Command command : {claim, expect})
    command.Add("--serial", &node_.serial, "Its serial number, as the machine's label has it")
        .Required();
  Command approve = node.Subcommand("approve", "Let in a machine that waits");
  approve.Add("--key", &node_.key,
              "The first digits of its key, as `node ls` prints it; needed where several machines "
              "say that they have this serial number");
  Command list = node.Subcommand("ls", "List machines: expected, waiting, enrolled");
  list.Add("--json", &node_.json, "Print JSON, a line each");
  Command remove = node.Subcommand("rm", "Forget a machine and revoke its certificate");
  Command logs = node.Subcommand("logs", "Print what a machine has logged since it started");
  for (Command command : {approve, remove, logs})
    command.Add("serial", &node_.serial, "Its serial number, as `node ls` prints it").Required();
  for (Command command : {claim, expect, approve, list, remove, logs})
    command.Add("--data", &node_.data, kDataHelp);

  Command boot = app.Subcommand(
      "boot", "Serve an image over HTTP to machines that boot over the network (docs/fleet.md)");
  boot.Add("--image", &boot_.image, "Folder that deploy/image/build wrote").Required();
  boot.Add("--listen", &boot_.listen, "HOST:PORT that the machines reach").ShowDefault();
  boot.Add("--gateway", &boot_.gateway,
           "HOST:PORT where they join: the gateway's --fleet-listen as they reach it (default: as "
           "the image says)");
  boot.Add("--append", &boot_.append, "Words to add to the kernel's command line");
  boot.Add("--file", &boot_.files, "A file to serve by its digest; may be given several times");
  boot.Add("--data", &boot_.data, kDataHelp);
  boot.Add("--ready-file", &boot_.ready.file, "Write the address here once it can be reached");
  boot.Add("--life-fd", &boot_.life_fd).Hidden();
  declared_ =
      std::make_unique<Declared>(Declared{claim, expect, approve, list, remove, logs, boot});
}

NodeCommands::~NodeCommands() = default;

bool NodeCommands::Given() const {
  const Declared& all = *declared_;
  for (const Command& command :
       {all.claim, all.expect, all.approve, all.list, all.remove, all.logs, all.boot})
    if (command.Given()) return true;
  return false;
}

int NodeCommands::Run() {
  if (declared_->claim.Given()) return RunNodeClaim(node_);
  if (declared_->expect.Given()) return RunNodeExpect(node_);
  if (declared_->approve.Given()) return RunNodeApprove(node_);
  if (declared_->list.Given()) return RunNodeList(node_);
  if (declared_->remove.Given()) return RunNodeRemove(node_);
  if (declared_->logs.Given()) return RunNodeLogs(node_);
  if (boot_.life_fd >= 0) fcntl(boot_.life_fd, F_SETFD, FD_CLOEXEC);
  BlockSignals();
  return RunBoot(boot_);
}

}  // namespace outboard::cli
