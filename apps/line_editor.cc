#include "line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cwchar>
#include <utility>

#include "console.h"
#include "interrupt.h"
#include "tokenizer/utf8.h"

namespace winnow::apps {
namespace {

constexpr int kHistoryEntries = 1000;
constexpr size_t kReadBytes = 1 << 16;
constexpr int kLookMs = 200;  // interval of checks for signals
constexpr wchar_t kReplacement = 0xFFFD;
// Sequences that enable and end a bracketed paste (DEC private mode 2004).
constexpr const char* kPasteOn = "\033[?2004h";
constexpr const char* kPasteOff = "\033[?2004l";
constexpr std::wstring_view kPasteEnd = L"\033[201~";

// Home, End, Delete, and Ctrl with arrows, as current terminals send them.
constexpr std::pair<const wchar_t*, const wchar_t*> kKeys[] = {
    {L"\\e[H", L"ed-move-to-beg"},       {L"\\e[F", L"ed-move-to-end"},
    {L"\\e[1~", L"ed-move-to-beg"},      {L"\\e[4~", L"ed-move-to-end"},
    {L"\\e[3~", L"ed-delete-next-char"}, {L"\\e[1;5D", L"ed-prev-word"},
    {L"\\e[1;5C", L"em-next-word"}};

// Global, because a signal handler can access nothing else.
volatile std::sig_atomic_t resized = 0;
void OnResize(int) { resized = 1; }

// The code point of a well-formed UTF-8 character.
wchar_t CodePoint(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (bytes.size() == 1) return at(0);
  int code = at(0) & (0xFF >> (bytes.size() + 1));
  for (size_t i = 1; i < bytes.size(); ++i) code = code << 6 | (at(i) & 0x3F);
  return static_cast<wchar_t>(code);
}

std::wstring Wide(std::string_view text) {
  std::wstring wide;
  while (!text.empty()) {
    const tokenizer::CharacterStart start = tokenizer::ClassifyStart(text);
    const bool whole = start.valid && start.complete;
    wide += whole ? CodePoint(text.substr(0, start.length)) : kReplacement;
    text.remove_prefix(start.length);
  }
  return wide;
}

std::string Narrow(std::wstring_view text) {
  std::string narrow;
  for (const wchar_t wide : text) {
    const auto code = std::bit_cast<uint32_t>(wide);
    if (code < 0x80) {
      narrow += static_cast<char>(code);
      continue;
    }
    const int n_more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    narrow += static_cast<char>((0xFF00U >> (n_more + 1) & 0xFFU) | code >> (6 * n_more));
    for (int i = n_more - 1; i >= 0; --i) {
      narrow += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
    }
  }
  return narrow;
}

}  // namespace

class LineEditor::Editor {
 public:
  Editor(Options options, const std::atomic<bool>& interrupted)
      : options_(std::move(options)),
        interrupted_(interrupted),
        screen_(isatty(STDOUT_FILENO) == 1 ? stdout : stderr),
        locale_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)),
        has_modes_(tcgetattr(STDIN_FILENO, &modes_) == 0) {
    // libedit measures and writes characters according to the locale, but models always use UTF-8.
    if (locale_ != nullptr) locale_before_ = uselocale(locale_);
    if (has_modes_) RestoreTerminalOnExit(modes_);
    struct sigaction action = {};
    action.sa_handler = OnResize;
    sigemptyset(&action.sa_mask);
    sigaction(SIGWINCH, &action, nullptr);

    line_ = el_init("winnow", stdin, screen_, stderr);
    if (line_ == nullptr) return;
    HistEventW event;
    history_ = history_winit();
    history_w(history_, &event, H_SETSIZE, kHistoryEntries);
    history_w(history_, &event, H_SETUNIQUE, 1);
    for (const std::string& line : options_.history) Remember(line);
    el_wset(line_, EL_CLIENTDATA, this);
    el_wset(line_, EL_GETCFN, &Editor::GetCharacter);
    el_wset(line_, EL_PROMPT_ESC, &Editor::Prompt, static_cast<int>(L'\1'));
    el_wset(line_, EL_HIST, history_w, history_);
    el_wset(line_, EL_EDITOR, L"emacs");
    el_wset(line_, EL_ADDFN, L"winnow-paste", L"Insert what is pasted", &Editor::Paste);
    el_wset(line_, EL_ADDFN, L"winnow-complete", L"Complete a command or a file",
            &Editor::Complete);
    el_wset(line_, EL_BIND, L"\\e[200~", L"winnow-paste", nullptr);
    el_wset(line_, EL_BIND, L"\\t", L"winnow-complete", nullptr);
    el_wset(line_, EL_BIND, L"^r", L"em-inc-search-prev", nullptr);
    for (const auto& [keys, what] : kKeys) {
      el_wset(line_, EL_BIND, keys, what, nullptr);
    }
    // While the model answers, do not cut lines at 4,095 bytes and do not echo into the answer.
    el_wset(line_, EL_SETTY, L"-x", L"-icanon", L"-echo", nullptr);
    el_source(line_, nullptr);
  }

  ~Editor() {
    if (line_ != nullptr) el_end(line_);
    if (history_ != nullptr) history_wend(history_);
    if (has_modes_) tcsetattr(STDIN_FILENO, TCSADRAIN, &modes_);
    if (locale_ != nullptr) {
      uselocale(locale_before_);
      freelocale(locale_);
    }
  }

  End Read(std::string_view prompt, std::string* line) {
    line->clear();
    if (line_ == nullptr) return End::kEndOfInput;
    prompt_ = Wide(prompt);
    Flush();
    Show(kPasteOn);
    int n = 0;
    const wchar_t* read = el_wgets(line_, &n);
    Show(kPasteOff);
    if (interrupted_) {
      const LineInfoW* info = el_wline(line_);
      *line = Narrow(std::wstring_view(info->buffer, static_cast<size_t>(std::max<ptrdiff_t>(
                                                         0, info->lastchar - info->buffer))));
      waiting_.clear();
      begin_ = 0;
      return End::kInterrupted;
    }
    if (read == nullptr || n <= 0) return End::kEndOfInput;
    *line = Narrow(std::wstring_view(read, static_cast<size_t>(n)));
    if (line->ends_with('\n')) line->pop_back();
    return End::kNone;
  }

  void Remember(const std::string& line) {
    if (history_ == nullptr || line.empty()) return;
    HistEventW event;
    history_w(history_, &event, H_ENTER, Wide(line).c_str());
  }

 private:
  static Editor& From(EditLine* line) {
    void* editor = nullptr;
    el_wget(line, EL_CLIENTDATA, &editor);
    return *static_cast<Editor*>(editor);
  }

  static wchar_t* Prompt(EditLine* line) { return From(line).prompt_.data(); }

  void Show(const char* sequence) {
    std::fputs(sequence, screen_);
    std::fflush(screen_);
  }

  // Waits for input. False: end of input, or a signal.
  bool Fill() {
    char buffer[kReadBytes];
    for (;;) {
      if (interrupted_) return false;
      if (resized != 0) {
        resized = 0;
        el_resize(line_);
      }
      // Poll first: a signal just before read() would only be noticed with the next key.
      struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (poll(&input, 1, kLookMs) <= 0) continue;
      const ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
      if (n > 0) {
        waiting_.append(buffer, static_cast<size_t>(n));
        return true;
      }
      if (n == 0 || errno != EINTR) return false;
    }
  }

  // Gets the next typed character; false: there is none.
  bool Next(wchar_t* character) {
    for (;;) {
      if (begin_ == waiting_.size()) {
        waiting_.clear();
        begin_ = 0;
        if (!Fill()) return false;
      }
      const std::string_view rest = std::string_view(waiting_).substr(begin_);
      const tokenizer::CharacterStart start = tokenizer::ClassifyStart(rest);
      if (!start.complete) {
        if (Fill()) continue;
        if (interrupted_) return false;
      }
      *character =
          start.valid && start.complete ? CodePoint(rest.substr(0, start.length)) : kReplacement;
      begin_ += start.length;
      return true;
    }
  }

  static int GetCharacter(EditLine* line, wchar_t* character) {
    return From(line).Next(character) ? 1 : From(line).interrupted_ ? -1 : 0;
  }

  // Appends the whole paste to the line.
  static unsigned char Paste(EditLine* line, wint_t /*key*/) {
    Editor& editor = From(line);
    std::wstring pasted;
    wchar_t character = 0;
    while (!pasted.ends_with(kPasteEnd)) {
      if (!editor.Next(&character))
        return static_cast<unsigned char>(editor.interrupted_ ? CC_EOF : CC_REFRESH);
      // Terminals send \r at the end of a line; text from Windows has \r\n.
      if (character == L'\n' && pasted.ends_with(L'\r')) pasted.pop_back();
      if (pasted.ends_with(L'\r')) pasted.back() = L'\n';
      if (character != 0) pasted += character;
    }
    pasted.resize(pasted.size() - kPasteEnd.size());
    if (pasted.ends_with(L'\r')) pasted.back() = L'\n';
    while (pasted.ends_with(L'\n')) pasted.pop_back();
    el_winsertstr(line, pasted.c_str());
    return CC_REFRESH;
  }

  static unsigned char Complete(EditLine* line, wint_t /*key*/) {
    Editor& editor = From(line);
    const LineInfoW* info = el_wline(line);
    const std::string before =
        Narrow(std::wstring_view(info->buffer, static_cast<size_t>(info->cursor - info->buffer)));
    const Completion completion = FindCompletion(before, editor.options_);
    if (completion.words.empty()) return CC_REFRESH_BEEP;
    std::string word = CommonStart(completion.words);
    const bool is_only = completion.words.size() == 1;
    const bool is_longer = word.size() > completion.n_typed;
    const bool is_folder = word.ends_with('/');
    if (is_only && !is_folder) word += ' ';
    if (is_only || is_longer) {
      el_winsertstr(line, Wide(word.substr(completion.n_typed)).c_str());
      return CC_REFRESH;
    }
    // List files without their folder.
    const bool are_files = before.find(' ') != std::string::npos;
    std::string list = "\n";
    for (const std::string& candidate : completion.words) {
      const size_t folder = candidate.find_last_of('/', candidate.size() - 2);
      const bool has_folder = are_files && folder != std::string::npos;
      list += (has_folder ? candidate.substr(folder + 1) : candidate) + "  ";
    }
    editor.Show((list + "\n").c_str());
    return CC_REDISPLAY;
  }

  Options options_;
  const std::atomic<bool>& interrupted_;
  FILE* screen_;
  locale_t locale_;
  locale_t locale_before_ = nullptr;
  struct termios modes_ = {};
  bool has_modes_;
  EditLine* line_ = nullptr;
  HistoryW* history_ = nullptr;
  std::wstring prompt_;
  std::string waiting_;  // read but not yet consumed
  size_t begin_ = 0;     // start of the unconsumed part
};

bool LineEditor::IsPossible() {
  return isatty(STDIN_FILENO) == 1 && (isatty(STDOUT_FILENO) == 1 || isatty(STDERR_FILENO) == 1);
}

LineEditor::LineEditor(Options options, const std::atomic<bool>& interrupted)
    : editor_(std::make_unique<Editor>(std::move(options), interrupted)) {}
LineEditor::~LineEditor() = default;

LineEditor::End LineEditor::Read(std::string_view prompt, std::string* line) {
  return editor_->Read(prompt, line);
}

void LineEditor::AddToHistory(const std::string& line) { editor_->Remember(line); }

}  // namespace winnow::apps
