// The text process, as a library and as a process. Run with the path of a model that has the vocabulary of Llama 3.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "bounds.h"
#include "cpu_limit.h"
#include "gguf.h"
#include "seam.pb.h"
#include "text.h"
#include "text_vocabulary.h"
#include "worker.grpc.pb.h"

extern char ** environ;

namespace meshnet {
namespace {

namespace pb = meshnet::worker::v1;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMaxTextBytes = 4 << 20;  // the largest HTTP body

int n_failed = 0;

void Check(bool ok, const char * what, int line) {
  if (!ok) {
    std::fprintf(stderr, "text_test.cpp:%d: %s\n", line, what);
    ++n_failed;
  }
}
#define CHECK(condition) Check((condition), #condition, __LINE__)

std::string scratch;  // a directory of this run

std::string Join(const std::vector<std::string> & pieces) {
  std::string out;
  for (const std::string & piece : pieces) {
    out += piece;
  }
  return out;
}

// `source` with another chat template, cut down to a header in a sparse file that is 1 GiB long.
std::string WithTemplate(const std::string & source, const std::string & name, const std::string & chat_template) {
  const std::string path = scratch + "/" + name;
  gguf_init_params params = {/*no_alloc=*/true, /*ctx=*/nullptr};
  gguf_context * gguf = gguf_init_from_file(source.c_str(), params);
  gguf_set_val_str(gguf, "tokenizer.chat_template", chat_template.c_str());
  gguf_write_to_file(gguf, path.c_str(), /*only_meta=*/true);
  gguf_free(gguf);
  CHECK(truncate(path.c_str(), off_t{1} << 30) == 0);
  return path;
}

std::unique_ptr<TextVocabulary> MustLoad(const std::string & path) {
  std::unique_ptr<TextVocabulary> vocabulary;
  const Status status = TextVocabulary::Load(path, &vocabulary);
  if (!status.ok()) {
    std::fprintf(stderr, "cannot load %s: %s\n", path.c_str(), status.message().c_str());
    std::exit(1);
  }
  return vocabulary;
}

void TestTokens(const TextVocabulary & vocabulary) {
  CHECK(vocabulary.facts().n_vocab > 100000);
  CHECK(vocabulary.facts().architecture == "llama");
  CHECK(vocabulary.facts().n_ctx_train > 0);
  CHECK(!vocabulary.facts().end_ids.empty());

  const std::string text = "The quick brown fox, 12345 times: \xf0\x9f\xa6\x8a\xe2\x80\x94\xe6\xbc\xa2\xe5\xad\x97.";
  std::vector<int32_t> ids;
  std::vector<std::string> pieces;
  CHECK(vocabulary.Tokenize(text, false, false, &ids).ok());
  CHECK(vocabulary.Pieces(ids, false, &pieces).ok());
  CHECK(pieces.size() == ids.size());
  CHECK(Join(pieces) == text);

  // Control tokens have text only when it is asked for, and are made from text only when that is allowed.
  const int32_t end = vocabulary.facts().eos;
  CHECK(vocabulary.Pieces({end}, true, &pieces).ok() && !pieces.at(0).empty());
  const std::string spelled = pieces.at(0);
  CHECK(vocabulary.Pieces({end}, false, &pieces).ok() && pieces.at(0).empty());
  CHECK(vocabulary.Tokenize(spelled, false, true, &ids).ok() && ids == std::vector<int32_t>{end});
  CHECK(vocabulary.Tokenize(spelled, false, false, &ids).ok() && ids.size() > 1);

  CHECK(vocabulary.Pieces({-1}, false, &pieces).code() == Code::kTokenInvalid);
  CHECK(vocabulary.Pieces({static_cast<int32_t>(vocabulary.facts().n_vocab)}, false, &pieces).code() ==
        Code::kTokenInvalid);
  CHECK(vocabulary.Tokenize(std::string(kMaxTextBytes, 'a'), false, false, &ids).code() == Code::kContextFull);
  CHECK(vocabulary.Tokenize(std::string(kMaxPromptBytes + 1, 'a'), false, false, &ids).code() == Code::kLimitExceeded);
}

void TestRender(const std::string & model_path) {
  const auto vocabulary = MustLoad(WithTemplate(
      model_path, "template.gguf",
      "{% for m in messages %}{{ '[' + m.role + ']' + m.content }}{% if m.role == 'tool' %}"
      "{{ raise_exception('no tools') }}{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"));
  CHECK(vocabulary->facts().has_chat_template);
  const std::string messages =
      R"([{"role":"system","content":"Be brief."},)"
      R"({"role":"user","content":[{"type":"text","text":"Hi "},{"type":"text","text":"you"}]}])";
  std::string prompt;
  std::vector<int32_t> ids, expected;
  CHECK(vocabulary->Render(messages, "", true, &prompt, &ids).ok());
  CHECK(prompt.starts_with("[system]Be brief.[user]Hi "));
  CHECK(prompt.ends_with("you[assistant]"));
  CHECK(vocabulary->Tokenize(prompt, true, true, &expected).ok() && ids == expected);
  CHECK(vocabulary->Render(messages, "", false, &prompt, &ids).ok() && prompt.ends_with("you"));

  CHECK(vocabulary->Render("[{", "", true, &prompt, &ids).code() == Code::kMalformed);
  CHECK(vocabulary->Render("{}", "", true, &prompt, &ids).code() == Code::kTurnInvalid);
  CHECK(vocabulary->Render(R"([{"role":"user"}])", "", true, &prompt, &ids).code() == Code::kTurnInvalid);
  CHECK(vocabulary->Render(R"([{"role":"tool","content":"x","tool_call_id":"1"}])", "", true, &prompt, &ids).code() ==
        Code::kTurnInvalid);
  CHECK(vocabulary
            ->Render(R"([{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":)"
                     R"({"name":"f","arguments":"{}"}}]}])",
                     "", true, &prompt, &ids)
            .code() == Code::kTurnInvalid);
  CHECK(vocabulary
            ->Render(messages, R"([{"type":"function","function":{"name":"f","parameters":{}}}])", true, &prompt, &ids)
            .code() == Code::kTurnInvalid);
  CHECK(vocabulary->Render(std::string(100000, '['), "", true, &prompt, &ids).code() == Code::kLimitExceeded);

  // A template that cannot be parsed spoils nothing but Render.
  const auto broken = MustLoad(WithTemplate(model_path, "broken.gguf", "{% for m in %}{{"));
  CHECK(broken->Render(messages, "", true, &prompt, &ids).code() == Code::kTurnInvalid);
  CHECK(broken->Tokenize("Hi", false, false, &ids).ok());
}

void TestGrammar(const TextVocabulary & vocabulary) {
  std::string grammar;
  CHECK(vocabulary.GrammarFromSchema("{}", &grammar).ok() && grammar.find("root ::=") != std::string::npos);
  CHECK(vocabulary
            .GrammarFromSchema(R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]})", &grammar)
            .ok());
  CHECK(vocabulary.GrammarFromSchema("{", &grammar).code() == Code::kMalformed);
  CHECK(vocabulary.GrammarFromSchema(R"({"type":"nonsense"})", &grammar).code() == Code::kGrammarInvalid);
  CHECK(vocabulary.GrammarFromSchema(R"({"$ref":"https://example.org/s.json"})", &grammar).code() ==
        Code::kGrammarInvalid);
  CHECK(vocabulary.GrammarFromSchema(R"({"type":"string","minLength":100000})", &grammar).code() ==
        Code::kGrammarInvalid);
  CHECK(vocabulary.GrammarFromSchema(std::string(kMaxSchemaBytes, ' ') + "{}", &grammar).code() ==
        Code::kLimitExceeded);
}

void TestCorruptFiles(const std::string & model_path) {
  std::ifstream file(model_path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string path = scratch + "/corrupt.gguf";
  std::unique_ptr<TextVocabulary> vocabulary;
  for (const std::string & damaged : {std::string(), std::string("GGUF"), bytes.substr(0, bytes.size() / 2),
                                      std::string(4096, '\xff'), bytes.substr(1)}) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    CHECK(TextVocabulary::Load(path, &vocabulary).code() == Code::kModelCorrupt);
  }
  CHECK(!TextVocabulary::Load(scratch + "/absent.gguf", &vocabulary).ok());
}

void TestCpuLimit() {
  std::mutex mutex;
  std::condition_variable changed;
  bool exceeded = false;
  CpuLimit limit(milliseconds(50), [&] {
    const std::lock_guard lock(mutex);
    exceeded = true;
    changed.notify_all();
  });
  {
    // Waiting costs nothing.
    const CpuLimit::Scope scope(&limit);
    std::unique_lock lock(mutex);
    CHECK(!changed.wait_for(lock, milliseconds(200), [&] { return exceeded; }));
  }
  const CpuLimit::Scope scope(&limit);
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  bool seen = false;
  while (!seen && std::chrono::steady_clock::now() < deadline) {
    const std::lock_guard lock(mutex);
    seen = exceeded;
  }
  CHECK(seen);
}

// This program again, as a text process. `alive` reads end of file when it is gone.
struct Child {
  pid_t pid = -1;
  int alive = -1;
};

Child Spawn(std::vector<std::string> arguments) {
  int ends[2];
  CHECK(pipe2(ends, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 9);
  arguments.insert(arguments.begin(), "text_test");
  std::vector<char *> argv;
  for (std::string & argument : arguments) {
    argv.push_back(argument.data());
  }
  argv.push_back(nullptr);
  Child child;
  CHECK(posix_spawn(&child.pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  child.alive = ends[0];
  return child;
}

bool Gone(const Child & child, seconds within) {
  pollfd watched = {child.alive, POLLIN, 0};
  return poll(&watched, 1, static_cast<int>(milliseconds(within).count())) == 1;
}

int ExitCode(const Child & child) {
  CHECK(Gone(child, seconds(30)));
  int status = -1;
  waitpid(child.pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::vector<std::string> ServeArguments(const std::string & model, const std::string & name) {
  std::ofstream(scratch + "/token", std::ios::binary) << std::string(kTokenBytes, 't');
  return {"--serve", "--text", "--model", model, "--control", scratch + "/" + name, "--token-file", scratch + "/token"};
}

struct Client {
  explicit Client(const std::string & name) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
    stub = pb::Text::NewStub(
        grpc::CreateCustomChannel("unix:" + scratch + "/" + name, grpc::InsecureChannelCredentials(), arguments));
  }

  void Prepare(grpc::ClientContext * context, const std::string & token) const {
    context->AddMetadata("meshnet-token-bin", token);
    context->set_wait_for_ready(true);
    context->set_deadline(std::chrono::system_clock::now() + seconds(60));
  }
  std::unique_ptr<pb::Text::Stub> stub;
  const std::string token = std::string(kTokenBytes, 't');
};

void TestProcess(const std::string & model_path) {
  const Child child = Spawn(ServeArguments(model_path, "text.sock"));
  const Client client("text.sock");
  {
    grpc::ClientContext context;
    client.Prepare(&context, client.token);
    pb::TextDescription description;
    CHECK(client.stub->Describe(&context, {}, &description).ok());
    CHECK(description.pid() == static_cast<uint32_t>(child.pid));
    CHECK(description.end_ids_size() > 0);
  }
  struct stat facts {};
  CHECK(stat((scratch + "/text.sock").c_str(), &facts) == 0 && (facts.st_mode & 0777) == 0600);
  for (const std::string & wrong : {std::string(), std::string(kTokenBytes, 'x'), std::string("t")}) {
    grpc::ClientContext context;
    client.Prepare(&context, wrong);
    pb::TextDescription description;
    CHECK(client.stub->Describe(&context, {}, &description).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  }
  {
    grpc::ClientContext context;
    client.Prepare(&context, client.token);
    pb::RenderRequest request;
    request.set_messages_json("nonsense");
    pb::Rendered rendered;
    CHECK(client.stub->Render(&context, request, &rendered).error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    const auto & trailers = context.GetServerTrailingMetadata();
    const auto found = trailers.find("meshnet-error-bin");
    meshnet::seam::v1::Error error;
    CHECK(found != trailers.end() &&
          error.ParseFromArray(found->second.data(), static_cast<int>(found->second.size())));
    CHECK(error.code() == meshnet::seam::v1::ERROR_CODE_MALFORMED);
  }
  {
    // A word an eighth as long as the longest request: std::regex and merging by pairs suffer most from those.
    grpc::ClientContext context;
    client.Prepare(&context, client.token);
    pb::TokenizeRequest request;
    request.set_text(std::string(kMaxTextBytes / 8, 'a'));
    pb::Tokens tokens;
    CHECK(client.stub->Tokenize(&context, request, &tokens).ok() && tokens.ids_size() > 0);
  }
  kill(child.pid, SIGTERM);
  CHECK(ExitCode(child) == 0);
  CHECK(stat((scratch + "/text.sock").c_str(), &facts) != 0);
}

void TestTimeLimit(const std::string & model_path) {
  const std::string model =
      WithTemplate(model_path, "endless.gguf",
                   "{% if messages[0].content == 'loop' %}{% for a in range(100000) %}{% for b in range(100000) %}"
                   "{% for c in range(100000) %}{% endfor %}{% endfor %}{% endfor %}{% endif %}ok");
  std::vector<std::string> arguments = ServeArguments(model, "endless.sock");
  arguments.insert(arguments.end(), {"--time-limit-ms", "500"});
  const Child child = Spawn(arguments);
  const Client client("endless.sock");
  grpc::ClientContext context;
  client.Prepare(&context, client.token);
  pb::RenderRequest request;
  request.set_messages_json(R"([{"role":"user","content":"loop"}])");
  pb::Rendered rendered;
  CHECK(client.stub->Render(&context, request, &rendered).error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(ExitCode(child) == 3);
}

void TestParentDies(const std::string & model_path) {
  std::vector<std::string> arguments = ServeArguments(model_path, "orphan.sock");
  arguments.front() = "--parent";
  const Child parent = Spawn(arguments);
  const Client client("orphan.sock");
  grpc::ClientContext context;
  client.Prepare(&context, client.token);
  pb::TextDescription description;
  CHECK(client.stub->Describe(&context, {}, &description).ok());
  kill(parent.pid, SIGKILL);
  // Both hold the pipe, so it ends with the later of the two.
  CHECK(Gone(parent, seconds(10)));
  waitpid(parent.pid, nullptr, 0);
}

// What the parent of TestParentDies does: a text process of its own, then nothing until it is killed.
int RunParent(int argc, char ** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  arguments.front() = "--serve";
  arguments.insert(arguments.end(), {"--parent-pid", std::to_string(getpid())});
  std::vector<char *> pointers{argv[0]};
  for (std::string & argument : arguments) {
    pointers.push_back(argument.data());
  }
  pointers.push_back(nullptr);
  pid_t pid = -1;
  if (posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, pointers.data(), environ) != 0) {
    return 1;
  }
  pause();
  return 0;
}

void TestCommandLine(const std::string & model_path) {
  CHECK(ExitCode(Spawn({"--serve", "--text"})) == 2);
  std::vector<std::string> arguments = ServeArguments(model_path, "x.sock");
  arguments.insert(arguments.end(), {"--parent-pid", "0"});
  CHECK(ExitCode(Spawn(arguments)) == 2);
  CHECK(ExitCode(Spawn(ServeArguments(scratch + "/absent.gguf", "x.sock"))) == 1);
}

int Run(const std::string & model_path) {
  char pattern[] = "/tmp/meshnet-text-XXXXXX";
  if (mkdtemp(pattern) == nullptr) {
    return 1;
  }
  scratch = pattern;
  const auto vocabulary = MustLoad(model_path);
  TestTokens(*vocabulary);
  TestRender(model_path);
  TestGrammar(*vocabulary);
  TestCorruptFiles(model_path);
  TestCpuLimit();
  TestProcess(model_path);
  TestTimeLimit(model_path);
  TestParentDies(model_path);
  TestCommandLine(model_path);
  if (std::system(("rm -rf " + scratch).c_str()) != 0) {
    return 1;
  }
  std::fprintf(stderr, "%d failed\n", n_failed);
  return n_failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace meshnet

int main(int argc, char ** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--serve") == 0) {
    return meshnet::RunText(argc - 1, argv + 1);
  }
  if (argc > 1 && std::strcmp(argv[1], "--parent") == 0) {
    return meshnet::RunParent(argc, argv);
  }
  if (argc != 2) {
    std::fprintf(stderr, "usage: text_test MODEL.gguf\n");
    return 2;
  }
  return meshnet::Run(argv[1]);
}
