"""winnow on a terminal: editing messages, results that stay above a progress line, tables that
fit."""

import json
import stat
import termios
import time
import unittest

from harness import CliTest, winnow
from terminal import CTRL_C, CTRL_D, LEFT, PASTE_BEGIN, PASTE_END, TAB, UP, Terminal

PROMPT = rb"> "
DONE = rb"\[prefill [^\]]*\]"  # the statistics after an answer


class Editing(CliTest):
    def chat(self, *flags, history=True, **options):
        flags = ["--history-file", self.folder / self.id().split(".")[-1], *flags] if history else list(flags)
        return Terminal("chat", "-m", self.model, "--temp", "0", "-n", "4", "--ignore-eos", *flags, **options)

    @property
    def history(self):
        return (self.folder / self.id().split(".")[-1]).read_bytes()

    def messages_after(self, terminal):
        """The user's messages, read from a /save; ends the chat."""
        path = self.folder / "transcript.json"
        path.unlink(missing_ok=True)
        terminal.send(f"/save {path}\r")
        terminal.wait_for(rb"The conversation is in")
        terminal.send("/bye\r")
        self.assertEqual(terminal.end(), 0)
        messages = json.loads(path.read_text())["messages"]
        return [message["content"] for message in messages if message["role"] == "user"]

    def test_a_typed_line_of_20000_bytes_is_whole(self):
        line = b"the old man saw the tree " * 800
        self.assertEqual(len(line), 20000)
        piped = winnow("chat", "-m", self.model, stdin=line + b"\n")
        n_tokens = [word for word in piped.err.split() if word.isdigit()]
        with self.chat() as terminal:
            terminal.wait_for(PROMPT)
            terminal.send(line + b"\r")
            told = terminal.wait_for(rb"the conversation is \d+ tokens")
            self.assertIn(told.split()[-2].decode(), n_tokens)
            terminal.wait_for(PROMPT)
            terminal.send(CTRL_D)
            self.assertEqual(terminal.end(), 0)
        self.assertEqual(self.history, line.rstrip() + b" \n")

    def test_a_paste_of_three_lines_is_one_message(self):
        with self.chat() as terminal:
            terminal.wait_for(PROMPT)
            self.assertIn(b"\x1b[?2004h", terminal.raw)
            terminal.send(PASTE_BEGIN + b"the house\rthe tree\rthe \xc3\xa9glise\r" + PASTE_END)
            terminal.send("\r")
            terminal.wait_for(DONE)
            terminal.wait_for(PROMPT)
            self.assertEqual(self.messages_after(terminal), ["the house\nthe tree\nthe église"])
        self.assertEqual(self.history.splitlines()[0], "the house\\nthe tree\\nthe église".encode())

    def test_a_long_paste_is_one_message(self):
        paste = b"\r".join(b"line %d of a long text" % i for i in range(900))
        self.assertGreater(len(paste), 20000)
        with self.chat() as terminal:
            terminal.wait_for(PROMPT)
            terminal.send(PASTE_BEGIN + paste + PASTE_END + b"\r")
            terminal.wait_for(rb"the message is left out")
            terminal.wait_for(PROMPT)
            terminal.send(CTRL_D)
            self.assertEqual(terminal.end(), 0)
        self.assertEqual(self.history, paste.replace(b"\r", b"\\n") + b"\n")

    def test_arrow_keys_edit_and_recall(self):
        with self.chat() as terminal:
            terminal.wait_for(PROMPT)
            terminal.send(b"the hose" + LEFT + LEFT + b"u\r")
            terminal.wait_for(DONE)
            terminal.wait_for(PROMPT)
            terminal.send(UP + b"\r")
            terminal.wait_for(DONE)
            terminal.wait_for(PROMPT)
            self.assertEqual(self.messages_after(terminal), ["the house", "the house"])

    def test_history_lasts_and_can_be_left_out(self):
        state = self.folder / "state"
        for flags, recalled in (([], False), ([], True), (["--no-history"], False)):
            with self.chat(*flags, history=False, env={"XDG_STATE_HOME": str(state)}) as terminal:
                terminal.wait_for(PROMPT)
                terminal.send(UP + b"\r" if recalled else b"the red tree\r")
                terminal.wait_for(DONE)
                terminal.wait_for(PROMPT)
                terminal.send(CTRL_D)
                self.assertEqual(terminal.end(), 0)
        path = state / "winnow/chat_history"
        self.assertEqual(path.read_text(), "the red tree\n" * 2)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)

    def test_blocks_between_quotes(self):
        with self.chat() as terminal:
            terminal.wait_for(PROMPT)
            terminal.send('"""the house\r')
            terminal.wait_for(rb"\.\.\. ")
            terminal.send('the tree\r')
            terminal.wait_for(rb"\.\.\. ")
            terminal.send('"""\r')
            terminal.wait_for(DONE)
            terminal.wait_for(PROMPT)
            terminal.send('"""a tree"""\r')
            terminal.wait_for(DONE)
            terminal.wait_for(PROMPT)
            self.assertEqual(self.messages_after(terminal), ["the house\nthe tree", "a tree"])

    def test_tab_completes_commands_and_files(self):
        note = self.file("a note.txt", "the old man")
        with self.chat() as terminal:
            terminal.wait_for(PROMPT)
            terminal.send(b"/he" + TAB + b"\r")
            terminal.wait_for(rb"/regen +answer")
            terminal.wait_for(PROMPT)
            terminal.send(b"/re" + TAB)
            terminal.wait_for(rb"/read  /regen")
            terminal.send(b"ad " + str(note)[:-6].encode() + TAB + b"\r")
            terminal.wait_for(rb"Read 11 B")
            terminal.wait_for(PROMPT)
            terminal.send(CTRL_D)
            self.assertEqual(terminal.end(), 0)

    def test_ctrl_c_discards_what_is_typed_then_ends(self):
        with self.chat() as terminal:
            terminal.wait_for(PROMPT)
            terminal.send("the wrong words")
            terminal.wait_for(rb"words")
            terminal.send(CTRL_C)
            terminal.wait_for(PROMPT)
            terminal.send("the house\r")
            terminal.wait_for(DONE)
            terminal.wait_for(PROMPT)
            time.sleep(0.2)
            terminal.send(CTRL_C)
            self.assertEqual(terminal.end(), 130)
            self.assertEqual(termios.tcgetattr(terminal.follower), terminal.modes)
        self.assertEqual(self.history, b"the house\n")

    def test_what_is_typed_while_it_answers_waits(self):
        line = b"the tree and the house " * 250  # more than the terminal's line mode holds
        with self.chat("-n", "200") as terminal:
            terminal.wait_for(PROMPT)
            terminal.send("the house\r")
            terminal.send(line + b"\r")
            terminal.wait_for(rb"the message is left out")
            terminal.wait_for(PROMPT)
            terminal.send(CTRL_D)
            self.assertEqual(terminal.end(), 0)
        self.assertEqual(self.history.splitlines()[1].rstrip(), line.rstrip())

    def test_ends_leave_the_terminal_as_it_was(self):
        with self.chat() as terminal:
            terminal.wait_for(PROMPT)
            terminal.process.terminate()
            self.assertEqual(terminal.end(), 143)
            self.assertEqual(termios.tcgetattr(terminal.follower), terminal.modes)

    def test_a_history_that_cannot_be_kept_is_told_once(self):
        with Terminal("chat", "-m", self.model, "--temp", "0", "-n", "2", "--history-file", "/dev/null/history") as terminal:
            for _ in range(2):
                terminal.wait_for(PROMPT)
                terminal.send("the house\r")
                terminal.wait_for(DONE)
            terminal.wait_for(PROMPT)
            terminal.send(CTRL_D)
            self.assertEqual(terminal.end(), 0)
            self.assertEqual(terminal.text.count("history: "), 1)


class Results(CliTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.text = cls.folder / "text.txt"
        cls.text.write_text("the old man saw the tree and the house. " * 2000)

    def test_progress_stays_away_from_open_lines(self):
        with Terminal("perplexity", "-m", self.model, "-f", self.text, "-c", "256") as terminal:
            self.assertEqual(terminal.end(), 0)
            shown = terminal.raw
        first = shown.index(b"[1]")
        last = shown.index(b"Final estimate")
        running = shown[first:last]
        self.assertNotIn(b"\x1b[K", running)  # nothing is erased once the estimates begin
        self.assertGreater(running.count(b"]"), 10)

    def test_tables_fit(self):
        flags = ["compare", "-m", self.model, "-p", "the old man saw the tree and the house", "-q", "Who?", "-n", "3",
                 "--kv-method", "snapkv:window=4,streaming", "--kv-size", "8,12"]
        whole = self.assert_done(winnow(*flags)).text
        self.assertGreater(max(map(len, whole.splitlines())), 100)
        with Terminal(*flags, columns=80) as terminal:
            self.assertEqual(terminal.end(), 0)
            table = [line for line in terminal.text.replace("\r", "").splitlines() if line.startswith("|")]
        self.assertLessEqual(max(map(len, table)), 80)
        for column in ("method", "budget", "tokens/s"):
            self.assertTrue(any(f"| {column}" in line for line in table), column)
        with Terminal("methods", columns=70) as terminal:
            self.assertEqual(terminal.end(), 0)
            self.assertLessEqual(max(map(len, terminal.text.replace("\r", "").splitlines()[:-3])), 90)


if __name__ == "__main__":
    unittest.main()
