#include "cli/node/commands.h"

#include <fcntl.h>

#include <vector>

namespace outboard::cli {

struct NodeCommands::Declared {
  Command claim, expect, approve, list, show, drain, reboot, logs, quarantine, remove;
  Command image_add, image_list, image_use, image_rollout, image_rollback, boot;

  // What each runs.
  struct Verb {
    const Command* command;
    int (*run)(const NodeFlags&);
  };
  std::vector<Verb> OfNodes() const {
    return {{&claim, RunNodeClaim},
            {&expect, RunNodeExpect},
            {&approve, RunNodeApprove},
            {&list, RunNodeList},
            {&show, RunNodeShow},
            {&drain, RunNodeDrain},
            {&reboot, RunNodeReboot},
            {&logs, RunNodeLogs},
            {&quarantine, RunNodeQuarantine},
            {&remove, RunNodeRemove}};
  }
  struct ImageVerb {
    const Command* command;
    int (*run)(const ImageFlags&);
  };
  std::vector<ImageVerb> OfImages() const {
    return {{&image_add, RunImageAdd},
            {&image_list, RunImageList},
            {&image_use, RunImageUse},
            {&image_rollout, RunImageRollout},
            {&image_rollback, RunImageRollback}};
  }
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
  claim.Add("--serial", &node_.serial, "Its serial number, as the machine's label has it")
      .Required();
  Command expect = node.Subcommand(
      "expect",
      "Let in, once, whichever machine says that it has a serial number; or, from now on, the one "
      "that proves the endorsement key of its TPM");
  expect.Add("--serial", &node_.serial,
             "Its serial number, as the machine's label has it; with --ek nothing else is that "
             "machine's");
  expect.Add("--ek", &node_.endorsement_key,
             "SHA-256 of its TPM's endorsement key, as `node show` and its console have it "
             "(docs/fleet.md)");
  Command approve = node.Subcommand("approve", "Let in a machine that waits");
  approve.Add("--key", &node_.key,
              "The first digits of its key, as `node ls` prints it; needed where several machines "
              "say that they have this serial number");
  Command list = node.ListSubcommand("List machines: expected, waiting, enrolled");
  list.Add("--json", &node_.json, "Print JSON, a line each");
  Command remove = node.Subcommand("rm", "Forget a machine and revoke its certificate");
  Command logs = node.Subcommand("logs", "Print what a machine has logged since it started");
  Command show = node.Subcommand("show", "Show one machine, and how its join test ended");
  Command drain = node.Subcommand(
      "drain", "Give a machine no session until it starts again; those that it has go elsewhere");
  Command reboot = node.Subcommand(
      "reboot", "Let a machine hand its sessions on and start again, through its firmware");
  reboot.Add("--power-hook", &node_.power_hook,
             "Instead switch it off and on: start this program with cycle and its serial number");
  Command quarantine = node.Subcommand(
      "quarantine", "Give a machine no session until `quarantine lift`, also after a restart");
  quarantine.Add("--lift", &node_.lift, "Give it sessions again, as `quarantine lift` does");
  for (Command command : {reboot, quarantine})
    command.Add("--why", &node_.why, "A line for the log");
  for (Command command : {approve, remove, logs, show, drain, reboot, quarantine})
    command.Add("serial", &node_.serial, "Its serial number, as `node ls` prints it").Required();
  show.Add("--json", &node_.json, "Print JSON");
  for (Command command :
       {claim, expect, approve, list, remove, logs, show, drain, reboot, quarantine})
    command.Add("--data", &node_.data, kDataHelp);

  Command image = app.Subcommand("image", "Manage what machines boot (docs/fleet.md)");
  image.RequireSubcommand();
  Command image_add =
      image.Subcommand("add", "Check an image, or drivers, and keep it; print its digest");
  image_add.Add("folder", &image_.folder, "Folder that deploy/image/build wrote").Required();
  image_add.Add("--driver", &image_.is_driver,
                "The folder has drivers of a vendor's, which deploy/image/driver wrote, for "
                "machines whose kernel they fit");
  image_add.Add("--digest", &image_.digest, "Refuse it unless it has this digest, sha256:...");
  image_add.Add("--signer", &image_.signer,
                "Certificate or public key (PEM): from now on images must be signed by it");
  Command image_list = image.ListSubcommand("List images, and how far the last rollout is");
  image_list.Add("--json", &image_.json, "Print JSON, a line each");
  Command image_use =
      image.Subcommand("use", "Let machines boot an image the next time that they start");
  Command image_rollout = image.Subcommand(
      "rollout", "Restart machines into an image, a share at a time; one that does not serve gets "
                 "its old image again, and the rollout stops");
  image_rollout.Add("--share", &image_.share_percent, "Percent of the machines at a time")
      .Between(1, 100)
      .ShowDefault();
  image_rollout
      .Add("--within", &image_.within_s, "Seconds from the restart until a machine must serve")
      .Between(10, 3600)
      .ShowDefault();
  for (Command command : {image_use, image_rollout}) {
    command.Add("image", &image_.image, "Its digest, or the first digits").Required();
    command.Add("--nodes", &image_.nodes, "Their serial numbers; * stands for any text")
        .ShowDefault();
  }
  Command image_rollback = image.Subcommand(
      "rollback", "Take the last rollout back: machines get the image that they had");
  for (Command command : {image_add, image_list, image_use, image_rollout, image_rollback})
    command.Add("--data", &image_.data, kDataHelp);

  Command boot = app.Subcommand(
      "boot", "Serve an image over HTTP(S) to machines that boot over the network (docs/fleet.md)");
  boot.Add("--image", &boot_.image,
           "Folder that deploy/image/build wrote, for machines of which `outboard image use` says "
           "nothing");
  boot.Add("--efi", &boot_.efi,
           "One signed file (deploy/image/sign --certificate) to serve as /boot.efi, for firmware "
           "that boots over HTTP under Secure Boot");
  boot.Add("--listen", &boot_.listen, "HOST:PORT that the machines reach").ShowDefault();
  boot.Add("--https-listen", &boot_.https_listen,
           "HOST:PORT of HTTPS besides, with a certificate of the gateway's CA, for firmware and "
           "loaders that ask for it");
  boot.Add("--tls-cert", &boot_.tls_certificate_file,
           "Certificate (PEM, with its chain) to show there instead; with --tls-key");
  boot.Add("--tls-key", &boot_.tls_key_file, "Its key (PEM)");
  boot.Add("--tls-name", &boot_.tls_names,
           "Further name or address of the own certificate; may be given several times");
  boot.Add("--gateway", &boot_.gateway,
           "HOST:PORT where they join: the gateway's --fleet-listen as they reach it (default: as "
           "the image says)");
  boot.Add("--append", &boot_.append, "Words to add to the kernel's command line");
  boot.Add("--file", &boot_.files, "A file to serve by its digest; may be given several times");
  boot.Add("--data", &boot_.data, kDataHelp);
  boot.Add("--ready-file", &boot_.ready.file, "Write the address here once it can be reached");
  boot.Add("--life-fd", &boot_.life_fd).Hidden();
  declared_ = std::make_unique<Declared>(
      Declared{claim, expect, approve, list, show, drain, reboot, logs, quarantine, remove,
               image_add, image_list, image_use, image_rollout, image_rollback, boot});
}

NodeCommands::~NodeCommands() = default;

bool NodeCommands::Given() const {
  for (const auto& verb : declared_->OfNodes())
    if (verb.command->Given()) return true;
  for (const auto& verb : declared_->OfImages())
    if (verb.command->Given()) return true;
  return declared_->boot.Given();
}

int NodeCommands::Run() {
  for (const auto& verb : declared_->OfNodes())
    if (verb.command->Given()) return verb.run(node_);
  for (const auto& verb : declared_->OfImages())
    if (verb.command->Given()) return verb.run(image_);
  if (boot_.life_fd >= 0) fcntl(boot_.life_fd, F_SETFD, FD_CLOEXEC);
  BlockSignals();
  return RunBoot(boot_);
}

}  // namespace outboard::cli
