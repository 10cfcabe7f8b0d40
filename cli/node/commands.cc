#include "cli/node/commands.h"

#include <memory>

namespace outboard::cli {

namespace {

constexpr char kGatewayDataHelp[] =
    "The gateway's folder (default: $OUTBOARD_DATA, else ~/.local/share/outboard)";

void AddNode(Arguments& app) {
  const auto flags = std::make_shared<NodeFlags>();
  NodeFlags& of_node = *flags;
  Command node =
      app.Subcommand("node", "Manage machines that boot over the network (docs/fleet.md)");
  node.RequireSubcommand();
  Command claim = node.Subcommand(
      "claim", "Make a claim with which one machine enrols, once, within 15 minutes; print it");
  claim.Add("--boot", &of_node.boot,
            "Print nothing: `outboard boot` gives it to the machine of this serial number, the "
            "next time that it boots");
  claim.Add("--serial", &of_node.serial, "Its serial number, as the machine's label has it")
      .Required();
  Command expect = node.Subcommand(
      "expect",
      "Let in, once, whichever machine says that it has a serial number; or, from now on, the one "
      "that proves the endorsement key of its TPM");
  expect.Add("--serial", &of_node.serial,
             "Its serial number, as the machine's label has it; with --ek nothing else is that "
             "machine's");
  expect.Add("--ek", &of_node.endorsement_key,
             "SHA-256 of its TPM's endorsement key, as `node show` and its console have it "
             "(docs/fleet.md)");
  Command approve = node.Subcommand("approve", "Let in a machine that waits");
  approve.Add("--key", &of_node.key,
              "The first digits of its key, as `node ls` prints it; needed where several machines "
              "say that they have this serial number");
  Command list = node.ListSubcommand("List machines: expected, waiting, enrolled");
  list.Add("--json", &of_node.json, "Print JSON, a line each");
  Command remove = node.Subcommand("rm", "Forget a machine and revoke its certificate");
  Command logs = node.Subcommand("logs", "Print what a machine has logged since it started");
  Command show = node.Subcommand("show", "Show one machine, and how its join test ended");
  Command drain = node.Subcommand(
      "drain", "Give a machine no session until it starts again; those that it has go elsewhere");
  Command reboot = node.Subcommand(
      "reboot", "Let a machine hand its sessions on and start again, through its firmware");
  reboot.Add("--power-hook", &of_node.power_hook,
             "Instead switch it off and on: start this program with cycle and its serial number");
  Command quarantine = node.Subcommand(
      "quarantine", "Give a machine no session until `quarantine lift`, also after a restart");
  quarantine.Add("--lift", &of_node.lift, "Give it sessions again, as `quarantine lift` does");
  for (Command command : {reboot, quarantine})
    command.Add("--why", &of_node.why, "A line for the log");
  for (Command command : {approve, remove, logs, show, drain, reboot, quarantine})
    command.Add("serial", &of_node.serial, "Its serial number, as `node ls` prints it").Required();
  show.Add("--json", &of_node.json, "Print JSON");
  for (Command command :
       {claim, expect, approve, list, remove, logs, show, drain, reboot, quarantine})
    command.Add("--data", &of_node.data, kGatewayDataHelp);
  claim.Runs(flags, RunNodeClaim);
  expect.Runs(flags, RunNodeExpect);
  approve.Runs(flags, RunNodeApprove);
  list.Runs(flags, RunNodeList);
  show.Runs(flags, RunNodeShow);
  drain.Runs(flags, RunNodeDrain);
  reboot.Runs(flags, RunNodeReboot);
  logs.Runs(flags, RunNodeLogs);
  quarantine.Runs(flags, RunNodeQuarantine);
  remove.Runs(flags, RunNodeRemove);
}

void AddImage(Arguments& app) {
  const auto flags = std::make_shared<ImageFlags>();
  ImageFlags& of_image = *flags;
  Command image = app.Subcommand("image", "Manage what machines boot (docs/fleet.md)");
  image.RequireSubcommand();
  Command image_add =
      image.Subcommand("add", "Check an image, or drivers, and keep it; print its digest");
  image_add.Add("folder", &of_image.folder, "Folder that deploy/image/build wrote").Required();
  image_add.Add("--driver", &of_image.is_driver,
                "The folder has drivers of a vendor's, which deploy/image/driver wrote, for "
                "machines whose kernel they fit");
  image_add.Add("--digest", &of_image.digest, "Refuse it unless it has this digest, sha256:...");
  image_add.Add("--signer", &of_image.signer,
                "Certificate or public key (PEM): from now on images must be signed by it");
  Command image_list = image.ListSubcommand("List images, and how far the last rollout is");
  image_list.Add("--json", &of_image.json, "Print JSON, a line each");
  Command image_use =
      image.Subcommand("use", "Let machines boot an image the next time that they start");
  Command image_rollout = image.Subcommand(
      "rollout", "Restart machines into an image, a share at a time; one that does not serve gets "
                 "its old image again, and the rollout stops");
  image_rollout.Add("--share", &of_image.share_percent, "Percent of the machines at a time")
      .Between(1, 100)
      .ShowDefault();
  image_rollout
      .Add("--within", &of_image.within_s, "Seconds from the restart until a machine must serve")
      .Between(10, 3600)
      .ShowDefault();
  for (Command command : {image_use, image_rollout}) {
    command.Add("image", &of_image.image, "Its digest, or the first digits").Required();
    command.Add("--nodes", &of_image.nodes, "Their serial numbers; * stands for any text")
        .ShowDefault();
  }
  Command image_rollback = image.Subcommand(
      "rollback", "Take the last rollout back: machines get the image that they had");
  for (Command command : {image_add, image_list, image_use, image_rollout, image_rollback})
    command.Add("--data", &of_image.data, kGatewayDataHelp);
  image_add.Runs(flags, RunImageAdd);
  image_list.Runs(flags, RunImageList);
  image_use.Runs(flags, RunImageUse);
  image_rollout.Runs(flags, RunImageRollout);
  image_rollback.Runs(flags, RunImageRollback);
}

void AddBoot(Arguments& app) {
  const auto flags = std::make_shared<BootFlags>();
  BootFlags& of_boot = *flags;
  Command boot = app.Subcommand(
      "boot", "Serve an image over HTTP(S) to machines that boot over the network (docs/fleet.md)");
  boot.Add("--image", &of_boot.image,
           "Folder that deploy/image/build wrote, for machines of which `outboard image use` says "
           "nothing");
  boot.Add("--efi", &of_boot.efi,
           "One signed file (deploy/image/sign --certificate) to serve as /boot.efi, for firmware "
           "that boots over HTTP under Secure Boot");
  boot.Add("--listen", &of_boot.listen, "HOST:PORT that the machines reach").ShowDefault();
  boot.Add("--https-listen", &of_boot.https_listen,
           "HOST:PORT of HTTPS besides, with a certificate of the gateway's CA, for firmware and "
           "loaders that ask for it");
  boot.Add("--tls-cert", &of_boot.tls_certificate_file,
           "Certificate (PEM, with its chain) to show there instead; with --tls-key");
  boot.Add("--tls-key", &of_boot.tls_key_file, "Its key (PEM)");
  boot.Add("--tls-name", &of_boot.tls_names,
           "Further name or address of the own certificate; may be given several times");
  boot.Add("--gateway", &of_boot.gateway,
           "HOST:PORT where they join: the gateway's --fleet-listen as they reach it (default: as "
           "the image says)");
  boot.Add("--append", &of_boot.append, "Words to add to the kernel's command line");
  boot.Add("--file", &of_boot.files, "A file to serve by its digest; may be given several times");
  boot.Add("--data", &of_boot.data, kGatewayDataHelp);
  boot.Add("--ready-file", &of_boot.ready.file, "Write the address here once it can be reached");
  boot.Add("--life-fd", &of_boot.life_fd).Hidden();
  boot.Runs(flags, [](const BootFlags& given) {
    BecomeServer(given.life_fd, given.ready);
    return RunBoot(given);
  });
}

}  // namespace

void AddNodeCommands(Arguments& app) {
  AddNode(app);
  AddImage(app);
  AddBoot(app);
}

}  // namespace outboard::cli
