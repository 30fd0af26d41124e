#!/usr/bin/env python3
"""Runs an example as its users do and compares the numbers that it prints.

  examples.py layouts COLONNADE PROGRAM LAYOUT...   the same steps in every layout: "2 --sequence-parallel" is two
                                                    ranks with that flag, "1" the program without a launcher
  examples.py own_model COLONNADE PROGRAM LAYOUT... the same, and its checkpoints: names, and the steps after a load
  examples.py resume COLONNADE PROGRAM              the steps after the load are those of the unbroken run

Both also give it settings that are wrong and look how it ends.
"""
import os
import re
import subprocess
import sys
import tempfile

NUMBER = re.compile(r"\d+(?:\.\d+)?")


def run(command, folder):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    return subprocess.run(command, cwd=folder, env=environment, text=True, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def lines_of(command, first_word, folder):
    """The numbers of each printed line that begins with `first_word`."""
    done = run(command, folder)
    if done.returncode != 0:
        sys.exit(f"{command} must end with 0; got {done.returncode}\n{done.stdout}")
    lines = [line for line in done.stdout.splitlines() if line.startswith(first_word)]
    return [[float(number) for number in NUMBER.findall(line)] for line in lines]


def launched(colonnade, program, layout, folder):
    ranks, *flags = layout.split()
    if ranks == "1":
        return [program, *flags]
    options = ["--nproc-per-node", ranks, "--log-dir", os.path.join(folder, "logs"), "--no-verb"]
    return [colonnade, "launch", *options, "--", program, *flags]


def equal(a, b):
    """But for the rounding of another order of sums, and of the print."""
    return len(a) == len(b) and all(abs(x - y) <= 2e-5 + 1e-4 * abs(y) for x, y in zip(a, b))


def check_refused(command, folder):
    """Settings that are wrong end a program of one's own as they end `colonnade`."""
    done = run(command, folder)
    if done.returncode != 2 or "error: " not in done.stdout or "terminate" in done.stdout:
        sys.exit(f"{command} must end with 2 and an error line; got {done.returncode}\n{done.stdout}")


def check_layouts(colonnade, program, layouts, folder):
    expected = None
    for layout in layouts:
        steps = lines_of(launched(colonnade, program, layout, folder), "step", folder)
        expected = expected or steps
        if len(steps) < 4 or steps[-1][1] > 0.7 * steps[0][1]:
            sys.exit(f"{layout}: a falling loss over four lines or more must be printed; got {steps}")
        if len(steps) != len(expected) or not all(map(equal, steps, expected)):
            sys.exit(f"{layout} must print what {layouts[0]} prints; got\n{steps}\nand\n{expected}")


def check_own_model(colonnade, program, folder):
    """Saved by two pipeline ranks, resumed by them and by one rank: each prints the steps of the unbroken run."""
    pipeline = "2 --pipeline-model-parallel-size 2"
    unbroken = lines_of(launched(colonnade, program, pipeline, folder), "step", folder)
    lines_of(launched(colonnade, program, pipeline + " --train-iters 8 --save own", folder), "step", folder)
    again = lines_of(launched(colonnade, program, pipeline + " --load own --save again", folder), "step", folder)
    if again != unbroken[8:]:
        sys.exit(f"{program}: what is resumed must print steps 9 to 20 as the unbroken run; got\n{again}\nand\n{unbroken}")
    alone = lines_of(launched(colonnade, program, "1 --load own --save own", folder), "step", folder)
    if len(alone) != 12 or not all(map(equal, alone, unbroken[8:])):
        sys.exit(f"{program}: another layout must go on with the same numbers; got\n{alone}\nand\n{unbroken}")
    seen = run([colonnade, "checkpoint", "inspect", "own"], folder).stdout
    if "blocks.3.weight" not in seen or '"hugging_face_class": null' not in seen:
        sys.exit(f"own must have the program's names and no Hugging Face class; got\n{seen}")
    if run([colonnade, "checkpoint", "verify", "own"], folder).returncode != 0:
        sys.exit("own must be whole")
    planned = run([program, "plan", "8", "h100", "--pipeline-model-parallel-size", "2"], folder)
    if planned.returncode != 0 or "measured on the CPU path" not in planned.stdout or "fits: " not in planned.stdout:
        sys.exit(f"plan must describe the custom model; got {planned.returncode}\n{planned.stdout}")
    evaluated = run([colonnade, "evaluate", "--load", "own", "--mock-data"], folder)
    if evaluated.returncode != 2 or "load it with the program that saved it" not in evaluated.stdout:
        sys.exit(f"own must not be taken for a GPT; got {evaluated.returncode}\n{evaluated.stdout}")


def check_resume(colonnade, program, folder):
    steps = lines_of(launched(colonnade, program, "2", folder), "iteration", folder)
    if [int(step[0]) for step in steps] != [*range(1, 11), *range(6, 11)]:
        sys.exit(f"{program}: iterations 1 to 10 and again 6 to 10 must be printed; got {steps}")
    if steps[5:10] != steps[10:]:
        sys.exit(f"{program}: the job that loaded must print what the unbroken one did; got\n{steps[10:]}\nand\n{steps[5:10]}")


def main():
    what, colonnade, program, *layouts = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        if what in ("layouts", "own_model"):
            check_layouts(colonnade, program, layouts, folder)
            for ranks in "1", "2":
                check_refused(launched(colonnade, program, ranks + " --hidden-size 33", folder), folder)
            if what == "own_model":
                check_own_model(colonnade, program, folder)
        else:
            check_resume(colonnade, program, folder)
            check_refused(launched(colonnade, program, "1", folder), folder)  # its two tensor ranks are not there


main()
