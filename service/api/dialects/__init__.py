"""One file per API that the server speaks; `service/app.py` lists their dialects."""
