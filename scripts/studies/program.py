"""The program as a child process: one at a time, stopped gently, its answers read as JSON."""

import json
import os
import signal
import subprocess

from studies.plan import StudyError

DIVERGED = 3
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """By a signal, after the child has saved and ended."""

    def __init__(self, number):
        self.status = 128 + number


class ProgramFault(StudyError):
    """The program ended with a status that is no answer; its reason in one line."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


class Program:
    """`path` with the commands of transnormer. Children keep the study's lock while they live."""

    def __init__(self, path, lock=None):
        self.path = str(path)
        self.lock = lock
        self.child = None
        self.stopped_by = None
        for number in STOP_SIGNALS:
            signal.signal(number, self.pass_on)

    def pass_on(self, number, _):
        self.stopped_by = number
        if self.child is not None:
            os.killpg(self.child.pid, number if number != signal.SIGHUP else signal.SIGTERM)
        else:
            raise Stopped(number)

    def run(self, *words, stderr=subprocess.PIPE):
        """(status, what it said on stdout, and on stderr)."""
        # In a session of its own: the terminal's Ctrl-C reaches this script alone, which passes it on
        # once, since a second one would keep the program from saving.
        self.child = subprocess.Popen([self.path, *map(str, words)], stdout=subprocess.PIPE,
                                      stderr=stderr, text=True, start_new_session=True,
                                      pass_fds=[] if self.lock is None else [self.lock])
        try:
            said, complained = self.child.communicate()
        finally:
            status, self.child = self.child.wait(), None
        if self.stopped_by is not None:
            raise Stopped(self.stopped_by)
        return status, said, complained

    def text(self, *words):
        """stdout of a command that must end well."""
        status, said, complained = self.run(*words)
        if status != 0:
            raise ProgramFault(status, reason_in(complained) or
                               f"{' '.join(map(str, words[:2]))} ended with status {status}")
        return said

    def answer(self, *words):
        """The one JSON object of a command that is asked for JSON."""
        said = self.text(*words)
        try:
            return json.loads(said)
        except ValueError:
            raise StudyError(f"{words[0]} gave no JSON: {said[:80]!r}")

    def train(self, *words):
        """The status of a training, whose warnings and faults go to stderr as they come."""
        return self.run("train", *words, stderr=None)[0]


def reason_in(complaints):
    """The first fault that the program told, without its name."""
    lines = [line for line in complaints.splitlines() if line.startswith("transnormer: ")]
    return lines[0].removeprefix("transnormer: ") if lines else complaints.strip().split("\n")[-1]
